//! How a request is signed: Standard Webhooks, with a key that the receiver has too.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mainstay_core::{Error, Result};

/// What a secret begins with.
const PREFIX: &str = "whsec_";

/// The bytes of a key: less can be guessed, more gains nothing.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A key that requests are signed with, as `whsec_` and base64. Never shown.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl Secret {
    /// The signature of a request: what identifies it, when it was sent (seconds since 1970), and its body.
    pub(super) fn sign(&self, id: &str, sent_at: i64, body: &[u8]) -> String {
        let mut signing = hmac::Context::with_key(&self.0);
        signing.update(id.as_bytes());
        signing.update(format!(".{sent_at}.").as_bytes());
        signing.update(body);
        format!("v1,{}", STANDARD.encode(signing.sign()))
    }
}

impl FromStr for Secret {
    type Err = Error;

    /// The error never quotes what was given.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            let text = format!("must be whsec_ and the base64 of 24 to 64 random bytes; {why}");
            Error::invalid("webhook.route", "secrets", text)
        };
        let encoded =
            text.trim().strip_prefix(PREFIX).ok_or_else(|| wrong("one does not begin with whsec_"))?;
        let key = STANDARD.decode(encoded).map_err(|_| wrong("one is not base64"))?;
        if !BYTES.contains(&key.len()) {
            return Err(wrong(&format!("one has {} bytes", key.len())));
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &key)))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("whsec_…")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification, which its libraries are tested with.
    #[test]
    fn it_signs_as_standard_webhooks_does() {
        let secret: Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
        let signature =
            secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_is_never_shown() {
        let secret: Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
        assert_eq!(format!("{secret:?}"), "whsec_…");
        for text in ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_s3cret!", "whsec_czNjcmV0", "", "whsec_"] {
            let error = text.parse::<Secret>().unwrap_err();
            let told = format!("{error} {error:?}");
            assert!(text.len() < 8 || !told.contains(text.trim_start_matches("whsec_")), "{told}");
            assert_eq!(error.field(), Some("secrets"));
        }
    }
}
