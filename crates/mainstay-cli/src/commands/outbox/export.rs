//! `mainstay outbox export`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::Outbox;

use crate::output;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::text::counted;

use super::carried::Carried;
use super::list::FilterArgs;

const EXAMPLES: &str = "\
Examples:
  mainstay outbox export > outbox.ndjson
  mainstay outbox export --status failed --topic order.paid --output failed.ndjson
  mainstay outbox export --status ready | mainstay --database new.db outbox import

One JSON object in a line for each message, with its payload and headers, in the order in which they were enqueued. A file is there
when all of it is: it is written beside that name first. What is enqueued or settled meanwhile may be in it as it was before.
Which joins a message is a step of is not exported.";

/// Write messages as lines of JSON
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) async fn run(
    arguments: ExportArgs,
    outbox: &Outbox,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let filter = arguments.filter.filter();
    let all = arguments.filter.is_empty();
    let total = match all {
        // Only what can be counted without looking at every message.
        true => outbox.stats().await.ok().map(|stats| stats.open() + stats.done + stats.failed),
        false => None,
    };
    let mut target = Target::open(arguments.output)?;
    let mut progress = Progress::new("exporting", total, settings);
    let doing = "the messages can't be exported";
    let mut export = outbox.export(&filter).await.context(doing)?;
    let mut exported = 0;
    loop {
        let messages = export.next().await.context(doing)?;
        if messages.is_empty() {
            break;
        }
        let count = messages.len() as u64;
        for message in messages {
            target.write(&Carried::from(message))?;
        }
        exported += count;
        progress.add(count);
    }
    drop(progress);
    if let Some(path) = target.finish()? {
        output::note(format_args!("{} written to {}", counted(exported, "message"), path.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the lines go.
enum Target {
    Out(BufWriter<std::io::Stdout>),
    /// A file that has its name when all of it is there.
    File {
        writer: BufWriter<File>,
        aside: PathBuf,
        path: PathBuf,
    },
}

impl Target {
    fn open(path: Option<PathBuf>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self::Out(BufWriter::new(std::io::stdout()))) };
        let mut aside = path.clone().into_os_string();
        aside.push(".part");
        let aside = PathBuf::from(aside);
        let file = private(&aside).with_context(|| format!("{} can't be written", aside.display()))?;
        Ok(Self::File { writer: BufWriter::new(file), aside, path })
    }

    fn write(&mut self, message: &Carried) -> anyhow::Result<()> {
        let writer: &mut dyn Write = match self {
            Self::Out(writer) => writer,
            Self::File { writer, .. } => writer,
        };
        serde_json::to_writer(&mut *writer, message).map_err(std::io::Error::from)?;
        Ok(writer.write_all(b"\n")?)
    }

    /// Where it is, if it is a file.
    fn finish(self) -> anyhow::Result<Option<PathBuf>> {
        match self {
            Self::Out(mut writer) => {
                writer.flush()?;
                Ok(None)
            }
            Self::File { writer, aside, path } => {
                let written = || format!("{} can't be written", path.display());
                let file =
                    writer.into_inner().map_err(std::io::IntoInnerError::into_error).with_context(written)?;
                file.sync_all().with_context(written)?;
                std::fs::rename(&aside, &path).with_context(written)?;
                Ok(Some(path))
            }
        }
    }
}

/// A new file that only its owner reads: it will hold payloads.
fn private(path: &Path) -> std::io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
