//! `mainstay token new`: a token for the HTTP interface, and what the configuration has of it.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use mainstay::server::{NewToken, Role, Token};
use serde_json::json;

use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token; it is shown once and kept nowhere
    New(NewArgs),
}

/// Whose it is, and what it allows.
#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// Whose it is: the audit trail has what is done with it as token:NAME
    name: String,
    /// What it allows: viewer, operator or admin
    #[arg(long)]
    role: String,
}

pub(crate) fn run(command: TokenCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    let TokenCommand::New(NewArgs { name, role }) = command;
    let wrong = |error: mainstay::Error| Failure::usage("the token can't be made").because(error.message());
    let role: Role = role.parse().map_err(wrong)?;
    let token = NewToken::generate()?;
    let hash = token.hash();
    Token::new(&name, role, hash.clone()).map_err(wrong)?;
    if settings.json {
        let made =
            json!({"name": name, "role": role.as_str(), "token": token.reveal(), "hash": hash.to_text()});
        output::json(&made)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(format_args!("{}\n", token.reveal()))?;
    output::line("Give it to whoever is to have it; it is shown once. In mainstay.toml:\n")?;
    let quoted = |text: &str| toml_text(text);
    output::line(format_args!(
        "[[serve.token]]\nname = {}\nrole = \"{role}\"\nhash = \"{}\"",
        quoted(&name),
        hash.to_text()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// A text as TOML has it; JSON's is the same for what a name may hold.
fn toml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
