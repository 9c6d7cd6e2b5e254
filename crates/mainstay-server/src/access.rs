//! Who asks, and what they may do.

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use mainstay_core::audit::Actor;
use mainstay_core::{Error, ErrorKind, Result};

use crate::problem::{Kind, Problem};
use crate::state::Shared;
use crate::token::{PREFIX, Token, TokenHash};
use crate::{Role, request_id};

/// The address a request came from, as an extension of it. The listener of this crate sets it; an application that mounts the router
/// in its own may.
#[derive(Debug, Clone, Copy)]
pub struct PeerAddress(pub IpAddr);

/// Who may ask, and how they prove who they are.
#[derive(Debug, Clone, Default)]
#[must_use = "it is given to the router"]
pub struct Access {
    tokens: Vec<Token>,
    proxy: Option<TrustedProxy>,
    anyone: bool,
}

impl Access {
    /// Nobody but those that are added.
    pub fn nobody() -> Self {
        Self::default()
    }

    /// Everybody may do everything. Only where nobody else can reach it: on loopback, or behind something that authenticates.
    pub fn anyone() -> Self {
        Self { anyone: true, ..Self::default() }
    }

    /// Also those who have this token.
    pub fn token(mut self, token: Token) -> Self {
        self.tokens.push(token);
        self
    }

    /// Also those whom this proxy names.
    pub fn proxy(mut self, proxy: TrustedProxy) -> Self {
        self.proxy = Some(proxy);
        self
    }

    /// Whether nobody has to prove anything.
    pub fn is_open(&self) -> bool {
        self.anyone
    }

    /// Refuses two tokens of one name, whose holders the audit trail could not tell apart, two names of one token, and an access that nobody has.
    pub fn validate(&self) -> Result<()> {
        const ACCESS: &str = "server.access";
        for (index, token) in self.tokens.iter().enumerate() {
            if self.tokens[..index].iter().any(|other| other.name == token.name) {
                let reason = format_args!("must be different from each other, got {:?} twice", token.name);
                return Err(Error::invalid(ACCESS, "tokens", reason));
            }
            if let Some(other) = self.tokens[..index].iter().find(|other| other.hash.matches(&token.hash)) {
                let reason = format_args!(
                    "must be different from each other, {:?} and {:?} are the same token; make another with `mainstay token new`",
                    other.name, token.name
                );
                return Err(Error::invalid(ACCESS, "tokens", reason));
            }
        }
        if self.tokens.is_empty() && self.proxy.is_none() && !self.anyone {
            let text = "nobody has access: give a token or a proxy";
            return Err(Error::new(ErrorKind::Config, ACCESS, text));
        }
        Ok(())
    }

    fn identify(&self, headers: &HeaderMap, from: Option<IpAddr>) -> Claimed {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        if let Some(value) = given.next() {
            // A proxy in front may have believed the other one.
            if given.next().is_some() {
                return Claimed::Wrong;
            }
            let token = value.to_str().ok().and_then(|text| {
                let (scheme, token) = text.split_once(' ')?;
                scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
            });
            // The proxy may have authenticated somebody by that, and pass it on: as basic authentication, or as a bearer of its own kind.
            let named = || self.proxy.as_ref().and_then(|proxy| proxy.identify(headers, from));
            let Some(token) = token else { return named().map_or(Claimed::Wrong, Claimed::Known) };
            if let (false, Some(caller)) = (token.starts_with(PREFIX), named()) {
                return Claimed::Known(caller);
            }
            let hash = TokenHash::of(token);
            // All of them, whichever it is.
            let found = self
                .tokens
                .iter()
                .fold(None, |found, one| if one.hash.matches(&hash) { Some(one) } else { found });
            return match found {
                Some(token) => Claimed::Known(Caller::new(format!("token:{}", token.name), token.role)),
                None => Claimed::Wrong,
            };
        }
        if let Some(caller) = self.proxy.as_ref().and_then(|proxy| proxy.identify(headers, from)) {
            return Claimed::Known(caller);
        }
        if self.anyone {
            return Claimed::Known(Caller::new("http:anyone".to_owned(), Role::Admin));
        }
        Claimed::Nothing
    }
}

enum Claimed {
    Known(Caller),
    Nothing,
    Wrong,
}

/// A proxy in front that authenticates people, and names them in a header.
#[derive(Debug, Clone)]
pub struct TrustedProxy {
    addresses: Vec<IpAddr>,
    header: HeaderName,
    roles: BTreeMap<String, Role>,
    others: Option<Role>,
}

impl TrustedProxy {
    /// The proxy at these addresses, which names people in this header. It has to remove the header from what it is sent. People have no
    /// role unless they are given one.
    pub fn new(addresses: Vec<IpAddr>, header: &str) -> Result<Self> {
        const PROXY: &str = "server.proxy";
        let name = HeaderName::from_bytes(header.as_bytes()).map_err(|_| {
            Error::invalid(PROXY, "header", format_args!("must be the name of a header, got {header:?}"))
        })?;
        if addresses.is_empty() {
            return Err(Error::invalid(PROXY, "addresses", "must be at least one: those of the proxy"));
        }
        let addresses = addresses.into_iter().map(|address| address.to_canonical()).collect();
        Ok(Self { addresses, header: name, roles: BTreeMap::new(), others: None })
    }

    /// The role of somebody.
    #[must_use]
    pub fn role(mut self, user: impl Into<String>, role: Role) -> Self {
        self.roles.insert(user.into(), role);
        self
    }

    /// The role of everybody else whom the proxy names. Defaults to none.
    #[must_use]
    pub fn others(mut self, role: Option<Role>) -> Self {
        self.others = role;
        self
    }

    fn identify(&self, headers: &HeaderMap, from: Option<IpAddr>) -> Option<Caller> {
        if !from.is_some_and(|from| self.addresses.contains(&from.to_canonical())) {
            return None;
        }
        // Twice: one of them may be the client's own.
        let mut given = headers.get_all(&self.header).iter();
        let (user, None) = (given.next()?, given.next()) else { return None };
        let user = user.to_str().ok().map(str::trim).filter(|user| (1..=200).contains(&user.len()))?;
        let role = self.roles.get(user).copied().or(self.others)?;
        Some(Caller::new(format!("user:{user}"), role))
    }
}

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    name: String,
    pub(crate) role: Role,
}

impl Caller {
    fn new(name: String, role: Role) -> Self {
        Self { name, role }
    }

    /// As the audit trail has it: the request's id is what it belongs to.
    pub(crate) fn actor(&self) -> Actor {
        Actor::from(self.name.as_str()).correlated(request_id::current().unwrap_or_default())
    }

    /// Whether payloads and headers of messages are shown.
    pub(crate) fn sees_payloads(&self) -> bool {
        self.role >= Role::Operator
    }
}

/// Finds out who asks. Those who prove nothing go on, to what needs no proof.
pub(crate) async fn authenticate(State(shared): State<Shared>, mut request: Request, next: Next) -> Response {
    let from = request.extensions().get::<PeerAddress>().map(|peer| peer.0);
    match shared.access.get().identify(request.headers(), from) {
        Claimed::Known(caller) => {
            request.extensions_mut().insert(caller);
        }
        Claimed::Nothing => {}
        Claimed::Wrong => {
            metrics::counter!(crate::metrics::AUTHENTICATION_FAILURES).increment(1);
            if shared.throttle.failed(from) {
                let text =
                    "too many tokens from this address were not known; wait a minute, and check the token";
                return Problem::new(Kind::TooManyFailures, text).into_response();
            }
            // Only while it is not throttled: nobody is to fill the log.
            tracing::warn!(from = from.map(tracing::field::display), "a token is not known");
            let text = "the Authorization header must be `Bearer` and a token that the server knows";
            return Problem::new(Kind::Unauthenticated, text).into_response();
        }
    }
    next.run(request).await
}

/// Lets those through who have the role.
pub(crate) async fn require(role: Role, request: Request, next: Next) -> Response {
    match request.extensions().get::<Caller>() {
        Some(caller) if caller.role >= role => next.run(request).await,
        Some(caller) => {
            let text = format!("it needs the role {role}, and {} has the role {}", caller.name, caller.role);
            Problem::new(Kind::Forbidden, text).into_response()
        }
        None => Problem::new(Kind::Unauthenticated, "give a token as `Authorization: Bearer TOKEN`")
            .into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NewToken;

    fn headers(name: &str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        headers
    }

    fn role(claimed: Claimed) -> Option<Role> {
        match claimed {
            Claimed::Known(caller) => Some(caller.role),
            Claimed::Nothing | Claimed::Wrong => None,
        }
    }

    #[test]
    fn a_proxy_is_believed_from_its_own_address_only() {
        let proxy = TrustedProxy::new(vec!["10.0.0.1".parse().unwrap()], "X-User")
            .unwrap()
            .role("alice", Role::Admin);
        let access = Access::nobody().proxy(proxy);
        let alice = headers("x-user", "alice");
        let from = |address: &str| Some(address.parse().unwrap());
        assert_eq!(role(access.identify(&alice, from("10.0.0.1"))), Some(Role::Admin));
        assert_eq!(role(access.identify(&alice, from("::ffff:10.0.0.1"))), Some(Role::Admin));
        assert_eq!(role(access.identify(&alice, from("10.0.0.2"))), None);
        assert_eq!(role(access.identify(&alice, None)), None);
        let mut twice = alice.clone();
        twice.append("x-user", "bob".parse().unwrap());
        assert_eq!(role(access.identify(&twice, from("10.0.0.1"))), None, "one of them is the client's own");
        let mut basic = alice.clone();
        basic.insert("authorization", "Basic YTpi".parse().unwrap());
        assert_eq!(role(access.identify(&basic, from("10.0.0.1"))), Some(Role::Admin));
        assert_eq!(role(access.identify(&basic, from("10.0.0.2"))), None);
        assert_eq!(role(access.identify(&headers("x-user", "bob"), from("10.0.0.1"))), None);
        let mut bearer = alice.clone();
        bearer.insert("authorization", "Bearer eyJhbGciOi.e30.c2ln".parse().unwrap());
        assert_eq!(
            role(access.identify(&bearer, from("10.0.0.1"))),
            Some(Role::Admin),
            "of OpenID Connect, say"
        );
        assert_eq!(role(access.identify(&bearer, from("10.0.0.2"))), None);
        bearer.insert("authorization", "Bearer mst_wrong".parse().unwrap());
        assert_eq!(role(access.identify(&bearer, from("10.0.0.1"))), None, "one of ours, and wrong");
    }

    #[test]
    fn a_wrong_token_is_not_made_up_for_by_anything_else() {
        let token = NewToken::generate().unwrap();
        let access = Access::anyone().token(Token::new("ci", Role::Viewer, token.hash()).unwrap());
        let with = |value: &str| role(access.identify(&headers("authorization", value), None));
        assert_eq!(with(&format!("bearer {}", token.reveal())), Some(Role::Viewer));
        assert_eq!(with("Bearer wrong"), None);
        assert_eq!(with("Basic YTpi"), None);
        assert_eq!(role(access.identify(&HeaderMap::new(), None)), Some(Role::Admin));
    }

    #[test]
    fn two_tokens_of_one_name_are_refused() {
        let token = || Token::new("ci", Role::Viewer, NewToken::generate().unwrap().hash()).unwrap();
        let error = Access::nobody().token(token()).token(token()).validate().unwrap_err();
        assert_eq!(error.field(), Some("tokens"));
        let (same, role) = (NewToken::generate().unwrap(), |name: &str, role| (name.to_owned(), role));
        let named = [role("ci", Role::Admin), role("old", Role::Viewer)];
        let twice = named.into_iter().fold(Access::nobody(), |access, (name, role)| {
            access.token(Token::new(name, role, same.hash()).unwrap())
        });
        let error = twice.validate().unwrap_err();
        assert_eq!(error.field(), Some("tokens"));
        assert!(error.to_string().contains("ci") && error.to_string().contains("old"), "{error}");
        assert!(Access::nobody().validate().is_err() && Access::anyone().validate().is_ok());
    }
}
