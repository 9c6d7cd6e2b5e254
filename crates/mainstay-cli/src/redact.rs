//! Passwords out of texts: the last line of defence before anything is shown.

/// The text with every password in a URL (`scheme://user:password@`) and every `password=…` replaced.
pub(crate) fn redact(text: &str) -> String {
    redact_parameters(&redact_credentials(text))
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\'' | '"' | '`' | '\u{1b}')
}

fn redact_credentials(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let word = &after[..after.find(ends_word).unwrap_or(after.len())];
        // The last `@`: one within the password itself must not end it.
        rest = match word.rfind('@') {
            None => after,
            Some(at) => {
                let user = word[..at].split([':', '/', '?']).next().unwrap_or_default();
                shown.push_str(user);
                if user.len() < at {
                    shown.push_str(":***");
                }
                &after[at..]
            }
        };
    }
    shown + rest
}

fn redact_parameters(text: &str) -> String {
    const KEY: &str = "password=";
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(KEY) {
        let (before, after) = rest.split_at(at + KEY.len());
        shown.push_str(before);
        shown.push_str("***");
        rest = &after[after.find(|c| ends_word(c) || c == '&').unwrap_or(after.len())..];
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::redact;

    #[test]
    fn passwords_go_and_the_rest_stays() {
        for (text, shown) in [
            ("nothing to hide: a@b", "nothing to hide: a@b"),
            ("at postgres://u:s3cret@h:1/d now", "at postgres://u:***@h:1/d now"),
            ("'postgres://u:s3@cret@h/d'", "'postgres://u:***@h/d'"),
            ("postgres://u@h/d", "postgres://u@h/d"),
            ("postgres://h/d?password=s3cret&x=1", "postgres://h/d?password=***&x=1"),
            ("host=h password=s3cret", "host=h password=***"),
            ("a://u:s3cret@h b://v:s3cret@i", "a://u:***@h b://v:***@i"),
        ] {
            assert_eq!(redact(text), shown);
        }
    }
}
