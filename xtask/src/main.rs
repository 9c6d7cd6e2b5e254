//! The chores of the workspace, run as `cargo xtask`.

// What the chores say is for the person who started them.
#![allow(clippy::print_stdout)]

mod bench;
mod cargo;
mod chaos;
mod ci;
mod conformance;
mod failure;
mod interrupt;
mod pinned;
mod postgres;
mod reliability;
mod run;
mod test;
mod tools;

use std::process::ExitCode;

use failure::Failure;

/// A chore: its name, its part of the usage text, and what it does with its arguments.
type Command = (&'static str, &'static str, fn(&[String]) -> Result<(), Failure>);

/// One file per command, one line here.
const COMMANDS: &[Command] = &[
    ("test", test::USAGE, test::main),
    ("postgres", postgres::USAGE, postgres::main),
    ("conformance", conformance::USAGE, conformance::main),
    ("chaos", chaos::USAGE, chaos::main),
    ("reliability", reliability::USAGE, reliability::main),
    ("ci", ci::USAGE, ci::main),
    ("bench", bench::USAGE, bench::main),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = arguments.split_first() else {
        println!("{}", usage());
        return ExitCode::SUCCESS;
    };
    if ["--help", "-h", "help"].contains(&name.as_str()) {
        println!("{}", usage());
        return ExitCode::SUCCESS;
    }
    let Some((_, usage_of_command, command)) = COMMANDS.iter().find(|(known, ..)| known == name) else {
        eprintln!("error: unknown command `{name}`\n\n{}", usage());
        return ExitCode::from(2);
    };
    let own = rest.iter().take_while(|argument| *argument != "--");
    if own.into_iter().any(|it| it == "--help" || it == "-h") {
        println!("Usage: cargo xtask {usage_of_command}");
        return ExitCode::SUCCESS;
    }
    match command(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = &failure.message {
                eprintln!("error: {message}");
            }
            if failure.code == failure::USAGE {
                eprintln!("\nUsage: cargo xtask {usage_of_command}");
            }
            ExitCode::from(failure.code)
        }
    }
}

fn usage() -> String {
    let mut text = "The chores of the workspace.\n\nUsage: cargo xtask <command>\n".to_owned();
    for (_, usage, _) in COMMANDS {
        text.push_str("\n  ");
        text.push_str(&usage.replace('\n', "\n  "));
        text.push('\n');
    }
    text.push_str("\n  --help\n      Print this, or the usage of a command");
    text
}
