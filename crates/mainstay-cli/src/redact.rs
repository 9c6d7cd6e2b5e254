//! Passwords and tokens out of texts: the last line of defence before anything is shown.

/// The text with every password in a URL (`scheme://user:password@`, and the same without its scheme) and every `password=…`
/// and `token=…` replaced.
pub(crate) fn redact(text: &str) -> String {
    redact_parameters(&redact_schemeless(&redact_credentials(text)))
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

/// Of `user:password@host` the password, where no scheme says what it is.
fn redact_schemeless(text: &str) -> String {
    text.split_inclusive(ends_word).map(redact_word).collect()
}

fn redact_word(word: &str) -> String {
    // Behind `sqlite:` too.
    let begin = word.find("sqlite:").map_or(0, |at| at + "sqlite:".len());
    let (before, given) = word.split_at(begin);
    let credentials = given.rfind('@').map(|at| given.split_at(at));
    match credentials.and_then(|(credentials, host)| Some((credentials.split_once(':')?, host))) {
        Some(((user, password), host)) if !password.is_empty() && !word.contains("://") => {
            format!("{before}{user}:***{host}")
        }
        _ => word.to_owned(),
    }
}

fn redact_parameters(text: &str) -> String {
    // The last one also ends `access_token=` and `access token=`.
    const KEYS: [&str; 3] = ["password=", "pwd=", "token="];
    // Only ASCII letters change, so the places stay the same.
    let lower = text.to_ascii_lowercase();
    let mut shown = String::with_capacity(text.len());
    let mut done = 0;
    while let Some(begin) =
        KEYS.iter().filter_map(|key| Some(lower[done..].find(key)? + done + key.len())).min()
    {
        shown.push_str(&text[done..begin]);
        shown.push_str("***");
        let rest = &text[begin..];
        done = begin + rest.find(|c| ends_word(c) || matches!(c, '&' | ';')).unwrap_or(rest.len());
    }
    shown + &text[done..]
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
            ("no file u:s3cret@h/x.db here", "no file u:***@h/x.db here"),
            ("sqlite:u:s3@cret@h/x.db", "sqlite:u:***@h/x.db"),
            ("at 12:30: mail a@b", "at 12:30: mail a@b"),
            ("'mssql://h/d?access_token=s3cret&x=1'", "'mssql://h/d?access_token=***&x=1'"),
            ("Server=h;Access Token=s3cret;x=1", "Server=h;Access Token=***;x=1"),
            ("Server=h;PWD=s3cret;Password=s3cret;x=1", "Server=h;PWD=***;Password=***;x=1"),
        ] {
            assert_eq!(redact(text), shown);
        }
    }
}
