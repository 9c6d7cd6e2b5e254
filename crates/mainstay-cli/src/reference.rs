//! The reference of every command and option, made of what the command line says of itself: `docs/reference/cli.md` holds it, and a test
//! compares. `UPDATE_REFERENCE=1 cargo test -p mainstay-cli reference` writes it anew.

use std::fmt::Write;

use clap::{Arg, Command, CommandFactory};

use crate::cli::Cli;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");
const HEAD: &str = "## Every command and option\n";

/// From here to its end the page is made.
fn reference() -> String {
    let mut program = Cli::command();
    program.build();
    let mut text =
        format!("{HEAD}\nMade of what `--help` says, by a test that also tells when it no longer does.\n");
    let everywhere: Vec<_> = program.get_arguments().filter(|option| option.is_global_set()).collect();
    text.push_str("\n### Everywhere\n");
    options(&mut text, everywhere.into_iter());
    for command in leaves(&program) {
        let usage = command.clone().render_usage().to_string();
        let usage =
            usage.strip_prefix("Usage: ").unwrap_or(&usage).split_whitespace().collect::<Vec<_>>().join(" ");
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        write!(text, "\n### {}\n\n{}. `{}`\n", name(command), about, usage.replace(" [OPTIONS]", ""))
            .unwrap();
        options(&mut text, command.get_arguments().filter(|option| !option.is_global_set()));
    }
    text
}

/// The commands that do something.
fn leaves(command: &Command) -> Vec<&Command> {
    let parts: Vec<_> = command.get_subcommands().filter(|part| !part.is_hide_set()).collect();
    match parts.is_empty() {
        true => vec![command],
        false => parts.into_iter().flat_map(leaves).collect(),
    }
}

/// `mainstay outbox list`.
fn name(command: &Command) -> String {
    command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn options<'a>(text: &mut String, all: impl Iterator<Item = &'a Arg>) {
    let shown = all
        .filter(|option| !option.is_hide_set() && !["help", "version"].contains(&option.get_id().as_str()));
    let rows: Vec<_> = shown.map(row).collect();
    if !rows.is_empty() {
        text.push_str("\n| | |\n|---|---|\n");
        text.extend(rows);
    }
}

fn row(option: &Arg) -> String {
    let mut names: Vec<_> = option.get_short().map(|short| format!("-{short}")).into_iter().collect();
    names.extend(option.get_long().map(|long| format!("--{long}")));
    let values = option.get_value_names().unwrap_or_default().join(" ");
    let takes = option.get_action().takes_values();
    let head = match (names.is_empty(), takes && !values.is_empty()) {
        (true, _) => values,
        (false, true) => format!("{} {values}", names.join(", ")),
        (false, false) => names.join(", "),
    };
    let help = option.get_help().map(ToString::to_string).unwrap_or_default().replace('\n', " ");
    let default: Vec<_> = option.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let default = match default.is_empty() || !takes {
        true => String::new(),
        false => format!(" [default: {}]", default.join(" ")),
    };
    format!("| `{head}` | {} |\n", format!("{help}{default}").replace('|', "\\|"))
}

#[test]
fn the_reference_is_that_of_this_program() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (written, _) = page.split_once(HEAD).expect("the page has the head of what is made");
    let wanted = format!("{written}{}", reference());
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(PAGE, &wanted).unwrap();
        return;
    }
    assert!(page == wanted, "run UPDATE_REFERENCE=1 cargo test -p mainstay-cli reference");
}

/// What people read first is written by hand: no command may be left out of it.
#[test]
fn every_command_is_in_the_overview() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (overview, _) = page.split_once("\n## ").unwrap();
    let rows: Vec<_> = overview.lines().filter(|line| line.starts_with("| `mainstay ")).collect();
    let mut program = Cli::command();
    program.build();
    for command in leaves(&program) {
        let words: Vec<_> = name(command).split(' ').map(str::to_owned).collect();
        let (head, last) = (words[..words.len() - 1].join(" "), &words[words.len() - 1]);
        let named = |row: &str| {
            let says = row.split(|c: char| !c.is_alphanumeric() && c != '-').any(|word| word == last);
            row.starts_with(&format!("| `{head}")) && says
        };
        assert!(rows.iter().any(|row| named(row)), "`{}` has no row", name(command));
    }
}
