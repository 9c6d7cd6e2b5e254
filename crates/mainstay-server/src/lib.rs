//! The HTTP interface of Mainstay: an axum router that an application mounts in its own, and a listener for those that have none.
//!
//! ```
//! # use mainstay_core::runtime::Mainstay;
//! # use mainstay_core::Result;
//! use mainstay_server::{Access, Interface};
//!
//! # fn mount(mainstay: Mainstay, application: axum::Router) -> Result<axum::Router> {
//! // Whoever reaches the application's own router may do everything here; see `Access` for tokens and proxies.
//! let interface = Interface::builder(mainstay, Access::anyone()).build()?;
//! Ok(application.nest("/mainstay", interface.router()))
//! # }
//! ```
//!
//! What it offers is in the OpenAPI document that it serves. Nothing here speaks to a database: every rule is the core's.

mod access;
mod api;
mod changing;
mod chores;
mod endpoint;
mod etag;
mod fresh;
mod health;
mod interface;
mod limits;
mod listen;
pub mod metrics;
mod openapi;
mod page;
mod patience;
mod problem;
mod request;
mod request_id;
mod role;
mod state;
mod stores;
mod taken;
mod throttle;
mod ticket;
mod tls;
mod token;
mod trace;
mod unread;
pub mod webhook;

pub use access::{Access, PeerAddress, TrustedProxy};
pub use interface::{Interface, InterfaceBuilder};
pub use limits::Limits;
pub use listen::{CurrentTls, ListenOptions, Listener};
pub use problem::Problem;
pub use role::Role;
pub use stores::Stores;
pub use tls::{client_tls, server_tls};
pub use token::{NewToken, Token, TokenHash};
