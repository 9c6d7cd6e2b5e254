//! `mainstay outbox export`.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::Outbox;
use mainstay::outbox::MessageFilter;
use tempfile::NamedTempFile;

use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::signals::Signals;
use crate::text::counted;

use super::carried::Carried;
use super::list::FilterArgs;

const EXAMPLES: &str = "\
Examples:
  mainstay outbox export > outbox.ndjson
  mainstay outbox export --status failed --topic order.paid --output failed.ndjson
  mainstay outbox export --status ready | mainstay --database new.db outbox import

One JSON object in a line for each message, with its payload and headers, in the order in which
they were enqueued. A file is there when all of it is: it is written beside that name first. What
is enqueued or settled meanwhile may be in it as it was before. Not exported: which joins a
message is a step of, which ordering keys are held, and which topics are paused.";

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
    // Whoever is interrupted takes the part of a file away again.
    let mut signals = Signals::watch(|| ());
    let exported = tokio::select! {
        exported = export(outbox, &filter, total, &mut target, settings) => exported?,
        () = signals.stop() => return Err(Failure::new("the export was interrupted").into()),
    };
    if let Some(path) = target.finish()? {
        output::note(format_args!("{} written to {}", counted(exported, "message"), path.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes all that match, and counts them.
async fn export(
    outbox: &Outbox,
    filter: &MessageFilter,
    total: Option<u64>,
    target: &mut Target,
    settings: &Settings,
) -> anyhow::Result<u64> {
    let mut progress = Progress::new("exporting", total, settings);
    let doing = "the messages can't be exported";
    let mut export = outbox.export(filter).await.context(doing)?;
    let mut exported = 0;
    loop {
        let messages = export.next().await.context(doing)?;
        if messages.is_empty() {
            return Ok(exported);
        }
        let count = messages.len() as u64;
        for message in messages {
            target.write(&Carried::from(message))?;
        }
        exported += count;
        progress.add(count);
    }
}

/// Where the lines go.
enum Target {
    Out(output::Lines),
    /// A file that has its name when all of it is there, and is gone if it never is. Only its owner reads it: it will hold payloads.
    File {
        writer: BufWriter<NamedTempFile>,
        path: PathBuf,
    },
}

impl Target {
    fn open(path: Option<PathBuf>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self::Out(output::Lines::new())) };
        // What is no file, a device say, would be replaced by one.
        if path.metadata().is_ok_and(|about| !about.is_file()) {
            return Err(Failure::usage(format!("{} is not a file", path.display()))
                .hint("name a file, or leave --output out to write to standard output")
                .into());
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut prefix = path.file_name().unwrap_or_default().to_owned();
        prefix.push(".");
        let made = tempfile::Builder::new().prefix(&prefix).suffix(".part").tempfile_in(folder);
        let file = made.with_context(|| format!("{} can't be written", path.display()))?;
        Ok(Self::File { writer: BufWriter::new(file), path })
    }

    fn write(&mut self, message: &Carried) -> anyhow::Result<()> {
        let writer: &mut dyn Write = match self {
            Self::Out(lines) => lines.writer(),
            Self::File { writer, .. } => writer,
        };
        serde_json::to_writer(&mut *writer, message).map_err(std::io::Error::from)?;
        Ok(writer.write_all(b"\n")?)
    }

    /// Where it is, if it is a file.
    fn finish(self) -> anyhow::Result<Option<PathBuf>> {
        match self {
            Self::Out(lines) => {
                lines.finish()?;
                Ok(None)
            }
            Self::File { writer, path } => {
                let written = || format!("{} can't be written", path.display());
                let file =
                    writer.into_inner().map_err(std::io::IntoInnerError::into_error).with_context(written)?;
                file.as_file().sync_all().with_context(written)?;
                file.persist(&path).with_context(written)?;
                Ok(Some(path))
            }
        }
    }
}
