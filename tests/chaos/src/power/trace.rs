//! Reads a recording of strace: what a process did to the files of one directory, in order.
//!
//! strace takes one stop of a thread at a time, and writes a call's line, or the end of its line,
//! before the thread goes on. So what a thread did because of something else stands after it. A
//! call takes effect here when it has returned. A sync covers what had returned before it was
//! called.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// A file, from its creation to its removal: one that is made anew under the same name is another.
pub(super) type FileId = usize;

/// Something that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Create {
        name: String,
        file: FileId,
    },
    Remove {
        name: String,
    },
    Write {
        file: FileId,
        offset: u64,
        data: Vec<u8>,
    },
    Truncate {
        file: FileId,
        length: u64,
    },
    /// Makes the steps before `before` on this file durable.
    Sync {
        file: FileId,
        before: usize,
    },
    /// Makes the creations and removals before `before` durable.
    SyncNames {
        before: usize,
    },
    /// The process wrote this line into the file of marks.
    Mark(String),
}

/// The calls that strace has to record. The last ones are not used; a recording with one of them
/// can't be replayed.
pub(super) const CALLS: &str = "openat,pwrite64,write,ftruncate,fsync,fdatasync,unlink,unlinkat,\
                                open,creat,rename,renameat,renameat2,link,linkat,writev,pwritev,pwritev2,\
                                fallocate,truncate,copy_file_range,sendfile,sync_file_range";

/// Bytes of a string that strace has to record: more than a page of a database.
pub(super) const STRING: usize = 65_536;

/// Reads the recording of a process that worked in `directory`, an absolute path without links.
/// Lines that it appended to the file `marks` are marks. Files whose names `ignored` says are left
/// out.
pub(super) fn read(
    trace: &[u8],
    directory: &Path,
    marks: &str,
    ignored: impl Fn(&str) -> bool,
) -> Result<Vec<Step>> {
    let mut reader = Reader {
        directory,
        marks,
        ignored,
        names: HashMap::new(),
        files: 0,
        steps: Vec::new(),
        line: String::new(),
    };
    let mut begun: HashMap<&[u8], (&[u8], usize)> = HashMap::new();
    for (number, line) in trace.split(|byte| *byte == b'\n').enumerate() {
        let Some(space) = line.iter().position(|byte| *byte == b' ') else { continue };
        let (thread, text) = (&line[..space], line[space..].trim_ascii_start());
        let read = if let Some(call) = text.strip_suffix(b" <unfinished ...>") {
            begun.insert(thread, (call, reader.steps.len()));
            Ok(())
        } else if text.starts_with(b"<... ") {
            let end = find(text, b" resumed>").context("a line that goes on has no end").map(|at| at + 9);
            let (start, before) = begun.remove(thread).unwrap_or((b"", reader.steps.len()));
            end.and_then(|end| reader.call(&[start, &text[end..]].concat(), before))
        } else {
            reader.call(text, reader.steps.len())
        };
        read.with_context(|| format!("line {} of the recording", number + 1))?;
    }
    Ok(reader.steps)
}

struct Reader<'a, I> {
    directory: &'a Path,
    marks: &'a str,
    ignored: I,
    names: HashMap<String, FileId>,
    files: usize,
    steps: Vec<Step>,
    /// The beginning of a mark whose end is not written yet.
    line: String,
}

/// What a descriptor stands for.
enum Target {
    Directory,
    Marks,
    File(FileId),
    /// Nothing that matters.
    Other,
}

impl<I: Fn(&str) -> bool> Reader<'_, I> {
    /// Takes in a whole call, which began when there were `before` steps.
    fn call(&mut self, text: &[u8], before: usize) -> Result<()> {
        // Signals and ends of threads.
        let Some(open) = text.iter().position(|byte| *byte == b'(') else { return Ok(()) };
        let name = &text[..open];
        if !name.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_') {
            return Ok(());
        }
        let end = rfind(text, b" = ").context("a call has no answer")?;
        let answer = &text[end + 3..];
        let arguments = text[open + 1..end].trim_ascii_end();
        let arguments = arguments.strip_suffix(b")").context("a call's arguments have no end")?;
        // It failed, or the process ended within it.
        if answer.starts_with(b"-") || answer.starts_with(b"?") {
            return Ok(());
        }
        let arguments = split(arguments);
        match name {
            b"openat" => self.open(&arguments, answer),
            b"pwrite64" => self.write(&arguments, answer, true),
            b"write" => self.write(&arguments, answer, false),
            b"ftruncate" => {
                if let Target::File(file) = self.target(argument(&arguments, 0)?)? {
                    let length = number(argument(&arguments, 1)?)?;
                    self.steps.push(Step::Truncate { file, length });
                }
                Ok(())
            }
            b"fsync" | b"fdatasync" => {
                match self.target(argument(&arguments, 0)?)? {
                    Target::File(file) => self.steps.push(Step::Sync { file, before }),
                    Target::Directory => self.steps.push(Step::SyncNames { before }),
                    Target::Marks | Target::Other => {}
                }
                Ok(())
            }
            b"unlink" => self.remove(argument(&arguments, 0)?),
            b"unlinkat" => self.remove(argument(&arguments, 1)?),
            _ => self.unforeseen(name, &arguments),
        }
    }

    fn open(&mut self, arguments: &[&[u8]], answer: &[u8]) -> Result<()> {
        let path = path_of(answer)?;
        let Some(name) = path.and_then(|path| self.name(&path)) else { return Ok(()) };
        if name == self.marks || (self.ignored)(&name) {
            return Ok(());
        }
        let flags = argument(arguments, 2)?;
        ensure!(find(flags, b"O_TRUNC").is_none(), "{name} is emptied when it is opened");
        if !self.names.contains_key(&name) {
            ensure!(find(flags, b"O_CREAT").is_some(), "{name} was there before the recording");
            let file = self.files;
            self.files += 1;
            self.names.insert(name.clone(), file);
            self.steps.push(Step::Create { name, file });
        }
        Ok(())
    }

    fn write(&mut self, arguments: &[&[u8]], answer: &[u8], has_offset: bool) -> Result<()> {
        let target = self.target(argument(arguments, 0)?)?;
        if matches!(target, Target::Other) {
            return Ok(());
        }
        let text = argument(arguments, 1)?;
        ensure!(!text.ends_with(b"..."), "a write is longer than what was recorded of it");
        let mut data = bytes(text)?;
        let written = usize::try_from(number(answer)?)?;
        ensure!(written <= data.len(), "more was written than recorded");
        data.truncate(written);
        match target {
            Target::File(file) => {
                ensure!(has_offset, "a write of a database file has no offset");
                let offset = number(argument(arguments, 3)?)?;
                self.steps.push(Step::Write { file, offset, data });
            }
            Target::Marks => {
                self.line.push_str(std::str::from_utf8(&data)?);
                while let Some(end) = self.line.find('\n') {
                    let rest = self.line.split_off(end + 1);
                    self.steps.push(Step::Mark(self.line.trim_end().to_owned()));
                    self.line = rest;
                }
            }
            Target::Directory | Target::Other => {}
        }
        Ok(())
    }

    fn remove(&mut self, path: &[u8]) -> Result<()> {
        let path = bytes(path)?;
        let name = self.name(Path::new(OsStr::from_bytes(&path)));
        if let Some(name) = name
            && self.names.remove(&name).is_some()
        {
            self.steps.push(Step::Remove { name });
        }
        Ok(())
    }

    /// A call that can't be replayed is fine where it is about other files.
    fn unforeseen(&self, call: &[u8], arguments: &[&[u8]]) -> Result<()> {
        for argument in arguments {
            let path = match argument.first() {
                Some(b'"') => Some(bytes(argument)?),
                _ => path_of(argument)?.map(|path| path.as_os_str().as_bytes().to_vec()),
            };
            let name = path.and_then(|path| self.name(Path::new(OsStr::from_bytes(&path))));
            if let Some(name) = name
                && !(self.ignored)(&name)
            {
                bail!("{} of {name} can't be replayed", String::from_utf8_lossy(call));
            }
        }
        Ok(())
    }

    fn target(&self, descriptor: &[u8]) -> Result<Target> {
        let Some(path) = path_of(descriptor)? else { return Ok(Target::Other) };
        if path == self.directory {
            return Ok(Target::Directory);
        }
        // One that was removed is of no consequence any more.
        let removed = descriptor.ends_with(b"(deleted)");
        let Some(name) = self.name(&path).filter(|name| !removed && !(self.ignored)(name)) else {
            return Ok(Target::Other);
        };
        if name == self.marks {
            return Ok(Target::Marks);
        }
        let file = self.names.get(&name).with_context(|| format!("{name} was never opened"))?;
        Ok(Target::File(*file))
    }

    /// The name of a file in the directory.
    fn name(&self, path: &Path) -> Option<String> {
        let name = path.strip_prefix(self.directory).ok()?;
        Some(name.to_str()?.to_owned()).filter(|name| !name.is_empty())
    }
}

fn argument<'a>(arguments: &[&'a [u8]], number: usize) -> Result<&'a [u8]> {
    arguments.get(number).copied().context("a call has too few arguments")
}

/// Splits arguments at their commas. Strings and paths are written in hexadecimal digits, so there
/// is none within.
fn split(arguments: &[u8]) -> Vec<&[u8]> {
    arguments.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect()
}

fn number(text: &[u8]) -> Result<u64> {
    let digits = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    Ok(std::str::from_utf8(&text[..digits])?.parse()?)
}

/// The path of a descriptor, as in `5<\x2f\x61>`.
fn path_of(descriptor: &[u8]) -> Result<Option<std::path::PathBuf>> {
    let (Some(open), Some(close)) = (find(descriptor, b"<"), rfind(descriptor, b">")) else {
        return Ok(None);
    };
    let path = &descriptor[open + 1..close];
    match path.starts_with(b"\\x") {
        true => Ok(Some(OsStr::from_bytes(&unescaped(path)?).into())),
        // Sockets and pipes.
        false => Ok(None),
    }
}

/// What stands between quotes.
fn bytes(text: &[u8]) -> Result<Vec<u8>> {
    let inner = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
    unescaped(inner.context("a string has no quotes")?)
}

fn unescaped(text: &[u8]) -> Result<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let byte = |escape: &[u8]| match escape {
        [b'\\', b'x', high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    ensure!(text.len().is_multiple_of(4), "a string is not in hexadecimal digits");
    text.chunks(4).map(byte).collect::<Option<_>>().context("a string is not in hexadecimal digits")
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

fn rfind(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).rposition(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> String {
        text.bytes().map(|byte| format!("\\x{byte:02x}")).collect()
    }

    fn steps(lines: &[String]) -> Result<Vec<Step>> {
        read(lines.join("\n").as_bytes(), Path::new("/d"), "marks", |name| name.ends_with("-shm"))
    }

    fn opened(name: &str) -> String {
        let path = hex(&format!("/d/{name}"));
        format!("7 openat(AT_FDCWD<{}>, \"{path}\", O_RDWR|O_CREAT|O_CLOEXEC, 0644) = 5<{path}>", hex("/"))
    }

    fn write(name: &str, data: &str, offset: u64) -> String {
        let count = data.len();
        format!(
            "7 pwrite64(5<{}>, \"{}\", {count}, {offset}) = {count}",
            hex(&format!("/d/{name}")),
            hex(data)
        )
    }

    #[test]
    fn calls_become_steps() {
        let file = hex("/d/a.db");
        let read = steps(&[
            opened("a.db"),
            opened("a.db"),
            opened("a.db-shm"),
            write("a.db", "page", 8),
            write("a.db-shm", "index", 0),
            format!("7 ftruncate(5<{file}>, 12)   = 0"),
            format!("7 fdatasync(5<{file}>)       = 0"),
            format!("7 fsync(6<{}>)               = 0", hex("/d")),
            format!("8 write(9<{}>, \"{}\", 5) = 5", hex("/d/marks"), hex("1 ok\n")),
            format!("8 write(1<{}>, \"{}\", 5) = 5", hex("/dev/null"), hex("noise")),
            format!("7 unlink(\"{file}\")          = 0"),
            opened("a.db"),
            "7 --- SIGCHLD {si_signo=SIGCHLD} ---".to_owned(),
            "7 +++ exited with 0 +++".to_owned(),
        ]);
        let expected = [
            Step::Create { name: "a.db".to_owned(), file: 0 },
            Step::Write { file: 0, offset: 8, data: b"page".to_vec() },
            Step::Truncate { file: 0, length: 12 },
            Step::Sync { file: 0, before: 3 },
            Step::SyncNames { before: 4 },
            Step::Mark("1 ok".to_owned()),
            Step::Remove { name: "a.db".to_owned() },
            Step::Create { name: "a.db".to_owned(), file: 1 },
        ];
        assert_eq!(read.unwrap(), expected);
    }

    #[test]
    fn a_call_that_others_interrupt_counts_when_it_returns() {
        let file = hex("/d/a.db");
        let written = write("a.db", "late", 0);
        let read = steps(&[
            opened("a.db"),
            format!("7 fsync(5<{file}> <unfinished ...>"),
            format!("8 {} <unfinished ...>", written[2..].strip_suffix(") = 4").unwrap()),
            "8 <... pwrite64 resumed>) = 4".to_owned(),
            "7 <... fsync resumed>)        = 0".to_owned(),
        ]);
        // What was written meanwhile is not covered.
        let expected = [
            Step::Create { name: "a.db".to_owned(), file: 0 },
            Step::Write { file: 0, offset: 0, data: b"late".to_vec() },
            Step::Sync { file: 0, before: 1 },
        ];
        assert_eq!(read.unwrap(), expected);
    }

    #[test]
    fn a_call_that_failed_or_wrote_less_is_taken_as_it_ended() {
        let failed = write("a.db", "none", 0).replace("= 4", "= -1 ENOSPC (No space left on device)");
        let short = write("a.db", "half", 0).replace("= 4", "= 2");
        let read = steps(&[opened("a.db"), failed, short]).unwrap();
        assert_eq!(read[1..], [Step::Write { file: 0, offset: 0, data: b"ha".to_vec() }]);
    }

    #[test]
    fn what_cannot_be_replayed_is_refused() {
        let file = hex("/d/a.db");
        let refused = [
            format!("7 rename(\"{file}\", \"{}\") = 0", hex("/d/b.db")),
            format!("7 fallocate(5<{file}>, 0, 0, 4096) = 0"),
            write("a.db", "cut", 0).replace("\", 3,", "\"..., 3,"),
            write("b.db", "unknown", 0),
        ];
        for line in refused {
            assert!(steps(&[opened("a.db"), line.clone()]).is_err(), "{line}");
        }
        let elsewhere = format!("7 rename(\"{}\", \"{}\") = 0", hex("/e/a"), hex("/e/b"));
        assert!(steps(&[elsewhere]).unwrap().is_empty());
    }
}
