//! Passwords and tokens out of texts: the last line of defence before anything is shown.
//!
//! A text is looked through in three ways: for URLs, for URLs without their scheme, and for `password=…`. Each looks at the text as it came, so that
//! what one of them hides can't mislead another. Where the end of a secret is in doubt, more is hidden than need be.

use std::ops::Range;

/// What is shown in place of a secret.
const HIDDEN: &str = "***";

/// The ends of the names whose values are secrets; the last one also ends `access_token` and `Access Token`.
const SECRETS: [&str; 3] = ["password", "pwd", "token"];

/// The text with every password in a URL (`scheme://user:password@`, and the same without its scheme) and every `password=…`, `pwd=…`
/// and `token=…` replaced.
pub(crate) fn redact(text: &str) -> String {
    let mut secrets = credentials(text);
    secrets.extend(schemeless(text));
    secrets.extend(parameters(text));
    secrets.sort_by_key(|secret| secret.start);
    let mut shown = String::with_capacity(text.len());
    let mut done = None;
    for secret in secrets {
        match done {
            // It begins within what is hidden already.
            Some(end) if secret.start <= end => done = Some(secret.end.max(end)),
            _ => {
                shown.push_str(&text[done.unwrap_or(0)..secret.start]);
                shown.push_str(HIDDEN);
                done = Some(secret.end);
            }
        }
    }
    shown + &text[done.unwrap_or(0)..]
}

/// The same for a text that may quote some of these, each of which is redacted by itself: where it ends is known then, whatever is in it.
pub(crate) fn redact_quoting(text: &str, quoted: impl IntoIterator<Item = String>) -> String {
    // What comes after the `=` of a flag is quoted without the flag.
    let parts = quoted.into_iter().flat_map(|whole| {
        let value =
            whole.split_once('=').filter(|_| whole.starts_with('-')).map(|(_, value)| value.to_owned());
        [Some(whole), value]
    });
    let mut parts: Vec<_> = parts.flatten().map(|part| (redact(&part), part)).collect();
    parts.retain(|(redacted, part)| redacted != part);
    parts.sort_by_key(|(_, part)| std::cmp::Reverse(part.len()));
    redact_parts(text, &parts)
}

/// Of those parts, the longest first.
fn redact_parts(text: &str, parts: &[(String, String)]) -> String {
    let Some(((redacted, part), shorter)) = parts.split_first() else { return redact(text) };
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = find_alone(rest, part) {
        shown.push_str(&redact_parts(&rest[..at], shorter));
        shown.push_str(redacted);
        rest = &rest[at + part.len()..];
    }
    shown + &redact_parts(rest, shorter)
}

/// Where a part is that nothing goes on before or after: otherwise it may be the beginning of another secret.
fn find_alone(text: &str, part: &str) -> Option<usize> {
    let alone = |at: &usize| {
        let (before, after) = (&text[..*at], &text[at + part.len()..]);
        before.chars().next_back().is_none_or(ends_word) && after.chars().next().is_none_or(ends_word)
    };
    text.match_indices(part).map(|(at, _)| at).find(alone)
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\'' | '"' | '`' | '\u{1b}')
}

fn ends_line(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{1b}')
}

/// The passwords of URLs.
fn credentials(text: &str) -> Vec<Range<usize>> {
    let password = |(at, scheme): (usize, &str)| {
        let begin = at + scheme.len();
        let rest = &text[begin..];
        let word = &rest[..rest.find(ends_word).unwrap_or(rest.len())];
        // The last `@`: one within the password itself must not end it.
        let credentials = &word[..word.rfind('@')?];
        let user = credentials.find([':', '/', '?'])?;
        Some(begin + user + 1..begin + credentials.len())
    };
    text.match_indices("://").filter_map(password).collect()
}

/// Of `user:password@host` the password, where no scheme says what it is.
fn schemeless(text: &str) -> Vec<Range<usize>> {
    let mut next = 0;
    let password = |word: &str| {
        let at = next;
        next += word.len();
        // Behind `sqlite:` too.
        let begin = word.find("sqlite:").map_or(0, |at| at + "sqlite:".len());
        let credentials = &word[begin..begin + word[begin..].rfind('@')?];
        let (user, password) = credentials.split_once(':')?;
        let found = !password.is_empty() && !word.contains("://");
        found.then(|| at + begin + user.len() + 1..at + begin + credentials.len())
    };
    text.split_inclusive(ends_word).filter_map(password).collect()
}

/// In what a `password=…` is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A URL: a value ends with its word, or at a `&`.
    Parameter,
    /// `host=h password=p dbname=d`: a value ends where the next name begins.
    Words,
    /// `Server=h;Password=p`, as ADO.NET has it, or a text of no known form: a value may have blanks in it.
    Parts,
}

/// The values of `password=…` and the like.
fn parameters(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut done = 0;
    while let Some(equals) = text[done..].find('=').map(|at| done + at) {
        done = equals + 1;
        if let Some(form) = secret_name(&text[..equals]) {
            let begin = text.len() - text[done..].trim_start_matches([' ', '\t']).len();
            done = begin + value(&text[begin..], form);
            found.push(begin..done);
        }
    }
    found
}

/// What a text is, if the name at its end is that of a secret.
fn secret_name(text: &str) -> Option<Form> {
    let text = text.trim_end_matches([' ', '\t']);
    let within = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '%' | '+');
    let before = text.trim_end_matches(within);
    let name = text[before.len()..].replace(['_', '-'], "").to_lowercase();
    if !SECRETS.iter().any(|secret| name.ends_with(secret)) {
        return None;
    }
    let word_before = before.split_whitespace().next_back().unwrap_or_default();
    Some(match before.chars().next_back() {
        Some('?' | '&') => Form::Parameter,
        Some(c) if c.is_whitespace() && word_before.contains('=') && !word_before.ends_with(';') => {
            Form::Words
        }
        _ => Form::Parts,
    })
}

/// The length of the value at the beginning of a text.
fn value(text: &str, form: Form) -> usize {
    let line = text.split(ends_line).next().unwrap_or_default();
    if form == Form::Parameter {
        return line.find(|c| ends_word(c) || matches!(c, '&' | ';')).unwrap_or(line.len());
    }
    // Quotes may have been escaped by whoever has quoted all of it.
    let opened = text.trim_start_matches('\\');
    let end = match opened.chars().next().filter(|first| matches!(first, '"' | '\'')) {
        Some(quote) => quoted(&opened[1..], quote, form).map(|end| text.len() - opened.len() + 1 + end),
        None => line.char_indices().map(|(at, _)| at).find(|at| may_follow(&line[*at..], form)),
    };
    end.unwrap_or(line.len())
}

/// The length of a value up to the quote that ends it and with it. A doubled one is part of the value, and so is one after which the value goes on.
fn quoted(text: &str, quote: char, form: Form) -> Option<usize> {
    let mut done = 0;
    loop {
        done += text[done..].find(quote)? + 1;
        match text[done..].strip_prefix(quote) {
            Some(_) => done += 1,
            None if may_follow(&text[done..], form) => return Some(done),
            None => {}
        }
    }
}

/// Whether a value may end before this. A separator with no name behind it may be part of a password.
fn may_follow(text: &str, form: Form) -> bool {
    let next = text.trim_start_matches([' ', '\t']);
    if next.chars().next().is_none_or(ends_line) {
        return true;
    }
    let separated = next.starts_with(';') || (form == Form::Words && next.len() < text.len());
    let next = next.trim_start_matches(|c: char| c == ';' || c.is_whitespace());
    separated && (next.is_empty() || begins_with_name(next, form))
}

fn begins_with_name(text: &str, form: Form) -> bool {
    let within = |c: char| c.is_ascii_alphabetic() || c == '_' || (form == Form::Parts && c == ' ');
    text.split_once('=').is_some_and(|(name, _)| !name.is_empty() && name.trim_end().chars().all(within))
}

#[cfg(test)]
mod tests {
    use super::{redact, redact_quoting};

    #[test]
    fn passwords_go_and_the_rest_stays() {
        for (text, shown) in [
            ("nothing to hide: a@b", "nothing to hide: a@b"),
            ("at postgres://u:s3cret@h:1/d now", "at postgres://u:***@h:1/d now"),
            ("'postgres://u:s3@cret@h/d'", "'postgres://u:***@h/d'"),
            ("postgres://u@h/d", "postgres://u@h/d"),
            ("postgres://h/d?password=s3cret&x=1", "postgres://h/d?password=***&x=1"),
            ("postgres://u:a&pwd=s3cret@h/d", "postgres://u:***"),
            ("host=h password=s3cret", "host=h password=***"),
            ("host=h.example password=s3cret dbname=d", "host=h.example password=*** dbname=d"),
            ("host=h password='my s3cret' dbname=d", "host=h password=*** dbname=d"),
            (r"host=h password='my\'s3cret' dbname=d", "host=h password=*** dbname=d"),
            ("a://u:s3cret@h b://v:s3cret@i", "a://u:***@h b://v:***@i"),
            ("no file u:s3cret@h/x.db here", "no file u:***@h/x.db here"),
            ("sqlite:u:s3@cret@h/x.db", "sqlite:u:***@h/x.db"),
            ("at 12:30: mail a@b", "at 12:30: mail a@b"),
            ("'mssql://h/d?access_token=s3cret&x=1'", "'mssql://h/d?access_token=***&x=1'"),
            ("tokens=3 and max_tokens = 4", "tokens=3 and max_tokens = 4"),
        ] {
            assert_eq!(redact(text), shown);
        }
    }

    #[test]
    fn what_ado_net_writes_has_no_password_left() {
        for (text, shown) in [
            ("Server=h;Access Token=s3cret;x=1", "Server=h;Access Token=***;x=1"),
            ("Server=h;PWD=s3cret;Password=s3cret;x=1", "Server=h;PWD=***;Password=***;x=1"),
            ("Server=h;Password='s3;cret'", "Server=h;Password=***"),
            ("Server=h;Password='s3;cret';Encrypt=true", "Server=h;Password=***;Encrypt=true"),
            ("Server=h;Password=\"s3cret\" ; Encrypt = true", "Server=h;Password=*** ; Encrypt = true"),
            ("Server=h;Password='it''s s3cret';x=1", "Server=h;Password=***;x=1"),
            ("Server=h;Password=\"a\"\";Encrypt=s3cret\";x=1", "Server=h;Password=***;x=1"),
            ("Server=h;Password=\"s3\"cret\";x=1", "Server=h;Password=***;x=1"),
            ("Server=h;Password='s3cret", "Server=h;Password=***"),
            ("Server=h;Password = s3cret ;x=1", "Server=h;Password = *** ;x=1"),
            ("Password=my s3cret", "Password=***"),
            ("Server=h;Pwd=my s3cret;User Id=u", "Server=h;Pwd=***;User Id=u"),
            ("Server=h; Access Token = \"s3 cret\"", "Server=h; Access Token = ***"),
            ("Server=h;access_token=s3 cret;", "Server=h;access_token=***;"),
            ("Server=h;Password=s3;cr3t", "Server=h;Password=***"),
            ("Server=h;Password=s3;cr3t=x;Encrypt=true", "Server=h;Password=***;Encrypt=true"),
            ("Server=h;Password=a://s3cret", "Server=h;Password=***"),
            ("Server=h;Password=a://u:s3 cret@x", "Server=h;Password=***"),
            ("X=a://b:;Password=s3@cret;Encrypt=true", "X=a://b:***;Encrypt=true"),
            (
                "\"Server=h;Password=\\\"s3;cret=x\\\";Encrypt=true\"",
                "\"Server=h;Password=***;Encrypt=true\"",
            ),
            ("no 'Server=h;Password=my s3cret' here\nUsage: x", "no 'Server=h;Password=***\nUsage: x"),
            ("\u{1b}[33mPassword=my s3cret\u{1b}[0m here", "\u{1b}[33mPassword=***\u{1b}[0m here"),
        ] {
            assert_eq!(redact(text), shown);
            assert_eq!(redact(shown), shown, "once is enough");
        }
    }

    #[test]
    fn what_is_quoted_ends_where_it_ends() {
        let quoted = |text: &str, arguments: &[&str]| {
            redact_quoting(text, arguments.iter().map(|argument| (*argument).to_owned()))
        };
        for (argument, shown) in [
            ("Server=h;Password=my s3cret", "Server=h;Password=***"),
            ("Server=h;Password='s3;cret'", "Server=h;Password=***"),
            ("Server=h;Password='s3\ncret';Encrypt=true", "Server=h;Password=***;Encrypt=true"),
            ("postgres://u:s3cret@h", "postgres://u:***@h"),
        ] {
            let told = |what: &str| format!("unexpected argument '{what}' found");
            assert_eq!(quoted(&told(argument), &["migrate", argument]), told(shown));
            let flag = format!("--limit={argument}");
            assert_eq!(quoted(&told(argument), &["list", &flag]), told(shown));
        }
        let (short, long) = ("Password=a b", "Server=h;Password=a b");
        assert_eq!(
            quoted("'Server=h;Password=a b' or 'Password=a b'", &[short, long]),
            "'Server=h;Password=***' or 'Password=***'"
        );
        assert_eq!(quoted("'Password=a bc' or 'pwd=d'", &[short]), "'Password=***");
    }
}
