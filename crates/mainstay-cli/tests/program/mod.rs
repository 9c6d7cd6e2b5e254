//! Runs the real program.

// Each test file uses its own part of this.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A run of the program in a folder of its own, without settings from outside.
pub(crate) struct Program {
    folder: TempDir,
    variables: Vec<(&'static str, String)>,
}

/// What a run said and how it ended.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Program {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    /// One with a migrated SQLite file, named by a configuration file.
    pub(crate) fn with_database() -> Self {
        let program = Self::new();
        program.write("mainstay.toml", "database = \"shop.db\"\n");
        program.run(&["migrate"]).succeeded();
        program
    }

    /// With this in its environment.
    pub(crate) fn with_variable(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// Makes `certificate.pem` of localhost, which is its own root, and its `key.pem`.
    pub(crate) fn make_certificate(&self) {
        let made = Command::new("openssl")
            .args(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
                    .split(' '),
            )
            .args(["-addext", "subjectAltName=DNS:localhost"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-keyout", "key.pem", "-out", "certificate.pem"])
            .current_dir(self.folder())
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
    }

    /// The program, ready to be given arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        let own = |name: &str| name.starts_with("MAINSTAY_") || name.starts_with("OTEL_");
        for (name, _) in std::env::vars().filter(|(name, _)| own(name)) {
            command.env_remove(name);
        }
        // What it says must not depend on whose terminal the tests run in.
        for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS"] {
            command.env_remove(name);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().expect("it ended by itself"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    pub(crate) fn succeeded(self) -> Self {
        self.ended(0)
    }

    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// Failed with this code, saying each of these on stderr.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, says: &[&str]) -> Self {
        let ran = self.ended(code);
        for text in says {
            assert!(ran.stderr.contains(text), "{text:?} is not in {}", ran.stderr);
        }
        ran
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}
