//! Bearer tokens: 256 random bits, of which only the SHA-256 is kept.
//!
//! A fast hash is enough for what can't be guessed. Neither a token nor its hash is in a log or a `Debug`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mainstay_core::{Error, ErrorKind, Result};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::Role;

/// How tokens begin, so that scanners for leaked secrets find them.
pub(crate) const PREFIX: &str = "mst_";

/// How hashes begin, so that another function can come beside it.
const SHA256: &str = "sha256:";

/// A new token, for whoever is to have it. Shown once.
pub struct NewToken(String);

impl NewToken {
    /// Makes one.
    pub fn generate() -> Result<Self> {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes).map_err(|error| {
            Error::new(
                ErrorKind::Internal,
                "server.token",
                format!("the system gave no random bytes: {error}"),
            )
        })?;
        Ok(Self(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// The token itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What the configuration holds of it.
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(&self.0)
    }
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewToken(…)")
    }
}

/// The SHA-256 of a token.
#[derive(Clone)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// That of a token.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// From the configuration: `sha256:` and 64 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            let reason = "must be sha256: and 64 hexadecimal digits, as `mainstay token new` prints it";
            Error::invalid("server.token", "hash", reason)
        };
        let digits = text.strip_prefix(SHA256).filter(|digits| digits.len() == 64).ok_or_else(wrong)?;
        let mut bytes = [0_u8; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let pair =
                std::str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|b| b.is_ascii_hexdigit()));
            *byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()).ok_or_else(wrong)?;
        }
        Ok(Self(bytes))
    }

    /// As the configuration has it.
    pub fn to_text(&self) -> String {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{SHA256}{digits}")
    }

    /// Whether it is the hash of the same token, in a time that tells nothing.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

/// A token that is accepted: whose it is, what it allows, and its hash.
#[derive(Debug, Clone)]
pub struct Token {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) hash: TokenHash,
}

impl Token {
    /// The longest name, in characters: with what stands before it, it is an actor's.
    const NAME_MAX: usize = 200;

    /// A token of this name, 1 to 200 characters: the audit trail has what is done with it under `token:` and the name.
    pub fn new(name: impl Into<String>, role: Role, hash: TokenHash) -> Result<Self> {
        let name = name.into();
        let got = name.chars().count();
        if !(1..=Self::NAME_MAX).contains(&got) || name.contains('\0') {
            let reason = format_args!("must be 1 to {} characters without NUL, got {got}", Self::NAME_MAX);
            return Err(Error::invalid("server.token", "name", reason));
        }
        Ok(Self { name, role, hash })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_hash_alone() {
        let token = NewToken::generate().unwrap();
        assert_eq!(token.reveal().len(), 4 + 43);
        let kept = TokenHash::parse(&token.hash().to_text()).unwrap();
        assert!(kept.matches(&TokenHash::of(token.reveal())));
        assert!(!kept.matches(&NewToken::generate().unwrap().hash()));
        let shown = format!("{token:?} {kept:?} {:?}", Token::new("ci", Role::Admin, kept.clone()).unwrap());
        assert!(!shown.contains(token.reveal()) && !shown.contains(&kept.to_text()[7..]), "{shown}");
    }

    #[test]
    fn what_is_no_hash_is_refused_without_being_quoted() {
        for text in ["", "sha256:", "md5:00", "mst_s3cret", &format!("sha256:{}", "+1".repeat(32))] {
            let error = TokenHash::parse(text).unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
