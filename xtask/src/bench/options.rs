//! The options of a measurement: `--name`, or `--name value`.

use std::str::FromStr;

use crate::failure::Failure;

/// What follows the name of a measurement, taken out piece by piece.
#[derive(Debug)]
pub(super) struct Options(Vec<String>);

impl Options {
    pub(super) fn new(arguments: &[String]) -> Self {
        Self(arguments.to_vec())
    }

    /// Whether `--name` is there.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        let found = self.0.iter().position(|argument| argument == name);
        found.map(|at| self.0.remove(at)).is_some()
    }

    /// The value of `--name value`.
    pub(super) fn value<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, Failure> {
        let Some(at) = self.0.iter().position(|argument| argument == name) else { return Ok(None) };
        self.0.remove(at);
        if at == self.0.len() {
            return Err(Failure::usage(format!("{name} takes a value")));
        }
        let value = self.0.remove(at);
        let wrong = |_| Failure::usage(format!("{name} can't be {value:?}"));
        value.parse().map(Some).map_err(wrong)
    }

    /// The values of `--name a,b,c`, each of which must be known.
    pub(super) fn list(&mut self, name: &str, known: &[&'static str]) -> Result<Vec<&'static str>, Failure> {
        let Some(text) = self.value::<String>(name)? else { return Ok(known.to_vec()) };
        let find = |wanted: &str| {
            known.iter().find(|it| **it == wanted).copied().ok_or_else(|| {
                Failure::usage(format!("{name}: there is no {wanted:?}; known are {}", known.join(", ")))
            })
        };
        text.split(',').map(find).collect()
    }

    /// Refuses what nobody took.
    pub(super) fn done(self) -> Result<(), Failure> {
        match self.0.first() {
            None => Ok(()),
            Some(argument) => Err(Failure::usage(format!("unexpected argument `{argument}`"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    fn options(words: &str) -> Options {
        Options(words.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn each_is_taken_once() {
        let mut options = options("--quick --rounds 3 --only b,a");
        assert!(options.flag("--quick"));
        assert!(!options.flag("--quick"));
        assert_eq!(options.value("--rounds").unwrap(), Some(3));
        assert_eq!(options.value::<u32>("--minutes").unwrap(), None);
        assert_eq!(options.list("--only", &["a", "b", "c"]).unwrap(), ["b", "a"]);
        assert_eq!(options.list("--work", &["a"]).unwrap(), ["a"]);
        options.done().unwrap();
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(options("--rounds").value::<u32>("--rounds").is_err());
        assert!(options("--rounds many").value::<u32>("--rounds").is_err());
        assert!(options("--only x").list("--only", &["a"]).is_err());
        assert!(options("--what").done().is_err());
    }
}
