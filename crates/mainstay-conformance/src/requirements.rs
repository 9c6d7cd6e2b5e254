//! The list of requirements: every id of the contract, with one line each.

/// One requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// Its id, such as `OBX-004`.
    pub id: String,
    /// What it asks, in one line.
    pub text: String,
}

/// The list as it stands in the crate: id, a tab, the line.
pub const LIST: &str = include_str!("../requirements.txt");

/// Reads a list. Empty lines and lines that begin with `#` are skipped; a line without a tab is an error.
pub fn parse(list: &str) -> Result<Vec<Requirement>, String> {
    let lines = list.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| match line.split_once('\t') {
            Some((id, text)) => Ok(Requirement { id: id.to_owned(), text: text.to_owned() }),
            None => Err(format!("line {} of the requirements has no tab: {line:?}", number + 1)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn no_id_is_listed_twice() {
        let mut seen = BTreeSet::new();
        for requirement in parse(LIST).unwrap() {
            assert!(seen.insert(requirement.id.clone()), "{} is listed twice", requirement.id);
            assert!(!requirement.text.trim().is_empty(), "{} says nothing", requirement.id);
        }
    }

    #[test]
    fn every_id_of_a_case_is_in_the_list() {
        let known: BTreeSet<String> = parse(LIST).unwrap().into_iter().map(|known| known.id).collect();
        for case in crate::all() {
            for id in case.ids {
                assert!(known.contains(*id), "{} names {id}, which is not in requirements.txt", case.name);
            }
        }
    }

    #[test]
    fn a_case_is_named_after_its_first_requirement_and_no_name_comes_twice() {
        let mut names = BTreeMap::new();
        for case in crate::all() {
            let prefix = case.ids[0].to_lowercase().replace('-', "_");
            assert!(case.name.starts_with(&format!("{prefix}_")), "{} should begin with {prefix}", case.name);
            assert!(names.insert(case.name, case.ids).is_none(), "{} comes twice", case.name);
        }
    }
}
