//! One operation of the interface: method, path, role, what comes in and goes out, and who handles it.
//!
//! The router and the OpenAPI document are made of the same values, so that neither has what the other lacks.

use std::collections::BTreeMap;

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::middleware::{Next, from_fn};
use axum::routing::{MethodFilter, on};
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::chores::{self, KEY_HEADER};
use crate::etag::Caching;
use crate::problem::ProblemBody;
use crate::state::Shared;
use crate::{Role, access, etag};

/// An operation that is being described.
#[must_use = "it is there once it has a handler"]
pub(crate) struct Endpoint {
    method: MethodFilter,
    verb: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    description: &'static str,
    role: Option<Role>,
    of_store: bool,
    etag: Option<Caching>,
    parameters: Vec<Value>,
    body: Option<Value>,
    answers: BTreeMap<u16, (String, Option<Content>)>,
    schemas: Vec<(String, Value)>,
}

enum Content {
    Json(Value),
    Other(&'static str),
}

impl Endpoint {
    fn new(
        method: MethodFilter,
        verb: &'static str,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        Self {
            method,
            verb,
            path,
            id,
            summary,
            description: "",
            role: Some(if verb == "get" { Role::Viewer } else { Role::Operator }),
            of_store: true,
            etag: None,
            parameters: Vec::new(),
            body: None,
            answers: BTreeMap::new(),
            schemas: Vec::new(),
        }
    }

    /// Something to read, for viewers unless told otherwise.
    pub(crate) fn get(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new(MethodFilter::GET, "get", path, id, summary)
    }
    /// Something to do, for operators unless told otherwise.
    pub(crate) fn post(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new(MethodFilter::POST, "post", path, id, summary)
    }
    pub(crate) fn put(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new(MethodFilter::PUT, "put", path, id, summary)
    }
    pub(crate) fn patch(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new(MethodFilter::PATCH, "patch", path, id, summary)
    }
    pub(crate) fn delete(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new(MethodFilter::DELETE, "delete", path, id, summary)
    }

    /// What else there is to know.
    pub(crate) fn note(mut self, text: &'static str) -> Self {
        self.description = text;
        self
    }
    /// Who may.
    pub(crate) fn role(mut self, role: Role) -> Self {
        self.role = Some(role);
        self
    }
    /// Everybody may, and no database is named.
    pub(crate) fn public(mut self) -> Self {
        self.role = None;
        self.of_store = false;
        self
    }
    /// No database is named.
    pub(crate) fn of_all(mut self) -> Self {
        self.of_store = false;
        self
    }
    /// Its answer has an ETag.
    pub(crate) fn etag(mut self) -> Self {
        self.etag = Some(Caching::Ask);
        self
    }
    /// Its answer has an ETag, and may have a payload: no cache keeps it.
    pub(crate) fn etag_of_payload(mut self) -> Self {
        self.etag = Some(Caching::Never);
        self
    }
    /// Parameters of the query.
    pub(crate) fn query<T: IntoParams>(mut self) -> Self {
        let parameters = T::into_params(|| Some(utoipa::openapi::path::ParameterIn::Query));
        self.parameters.extend(parameters.into_iter().map(|one| value(&one)));
        self
    }
    /// A header that may be given.
    pub(crate) fn header(mut self, name: &str, description: &str) -> Self {
        self.parameters.push(json!({
            "name": name, "in": "header", "required": false, "description": description,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
        }));
        self
    }
    /// The body.
    pub(crate) fn body<T: ToSchema>(mut self) -> Self {
        self.body = Some(self.reference::<T>());
        self
    }
    /// An answer with a body.
    pub(crate) fn answer<T: ToSchema>(mut self, status: u16, description: &str) -> Self {
        let reference = self.reference::<T>();
        self.answers.insert(status, (description.to_owned(), Some(Content::Json(reference))));
        self
    }
    /// An answer without one.
    pub(crate) fn empty(mut self, status: u16, description: &str) -> Self {
        self.answers.insert(status, (description.to_owned(), None));
        self
    }
    /// An answer that is no JSON.
    pub(crate) fn text(mut self, status: u16, kind: &'static str, description: &str) -> Self {
        self.answers.insert(status, (description.to_owned(), Some(Content::Other(kind))));
        self
    }

    fn reference<T: ToSchema>(&mut self) -> Value {
        let mut found = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut found);
        self.schemas.extend(found.iter().map(|(name, schema)| (name.clone(), value(schema))));
        json!({"$ref": format!("#/components/schemas/{}", T::name())})
    }

    /// Whether a header of this name has an effect.
    fn takes(&self, header: &str) -> bool {
        let name = |one: &Value| one["name"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(header));
        self.parameters.iter().any(|one| one["in"] == "header" && name(one))
    }

    /// Which problems can come of it, beside its answers.
    fn problems(&self) -> Vec<u16> {
        // Without a token there is public access; with one that is not known there is none.
        let mut statuses = vec![400, 401, 405, 421, 429, 500, 503];
        if self.role.is_some() {
            statuses.push(403);
        }
        if self.role.is_some() || self.path.contains('{') {
            statuses.extend([404, 422, 501]);
        }
        if self.verb != "get" {
            statuses.extend([409, 507]);
        }
        if self.body.is_some() {
            statuses.extend([408, 413, 415]);
        }
        statuses
    }

    fn operation(&self) -> Value {
        let mut parameters: Vec<Value> = names(self.path).map(path_parameter).collect();
        if self.of_store {
            parameters.push(json!({"$ref": "#/components/parameters/Store"}));
        }
        parameters.extend(self.parameters.iter().cloned());
        let mut responses = Map::new();
        for status in self.problems() {
            responses.insert(status.to_string(), json!({"$ref": "#/components/responses/Problem"}));
        }
        for (status, (description, content)) in &self.answers {
            let mut response = json!({"description": description});
            match content {
                Some(Content::Json(schema)) if *status >= 400 && self.role.is_some() => {
                    response["content"] = json!({"application/problem+json": {"schema": schema}});
                }
                Some(Content::Json(schema)) if *status >= 400 => {
                    let problem = json!({"$ref": "#/components/schemas/Problem"});
                    response["content"] = json!({
                        "application/json": {"schema": schema}, "application/problem+json": {"schema": problem},
                    });
                }
                Some(Content::Json(schema)) => {
                    response["content"] = json!({"application/json": {"schema": schema}})
                }
                Some(Content::Other(kind)) => {
                    response["content"] = json!({*kind: {"schema": {"type": "string"}}})
                }
                None => {}
            }
            responses.insert(status.to_string(), response);
        }
        if self.etag.is_some() {
            responses
                .insert("304".to_owned(), json!({"description": "It is still what `If-None-Match` names."}));
        }
        let tag = self.path.split('/').find(|part| !part.is_empty() && *part != "v1").unwrap_or("server");
        let mut operation = json!({
            "operationId": self.id, "summary": self.summary, "tags": [tag],
            "parameters": parameters, "responses": responses,
        });
        let role = self.role.map(|role| format!("Needs the role {role}."));
        let description = [Some(self.description.to_owned()), role].into_iter().flatten();
        let description: Vec<_> = description.filter(|text| !text.is_empty()).collect();
        if !description.is_empty() {
            operation["description"] = description.join(" ").into();
        }
        if self.role.is_none() {
            operation["security"] = json!([]);
        }
        if let Some(schema) = &self.body {
            operation["requestBody"] =
                json!({"required": true, "content": {"application/json": {"schema": schema}}});
        }
        operation
    }
}

/// What a path has in braces.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn path_parameter(name: &str) -> Value {
    let schema = match name {
        "id" | "item" => json!({"type": "string", "format": "uuid"}),
        "message_id" => json!({"type": "string", "minLength": 1, "maxLength": 512}),
        _ => json!({"type": "string", "minLength": 1, "maxLength": 255}),
    };
    json!({"name": name, "in": "path", "required": true, "schema": schema})
}

/// utoipa's own values, which can always be written.
fn value(of: &impl serde::Serialize) -> Value {
    serde_json::to_value(of).unwrap_or(Value::Null)
}

/// All operations: the router, and what the document says of them.
pub(crate) struct Endpoints {
    router: Router<Shared>,
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
    /// Names that two schemas have; there must be none.
    pub(crate) collisions: Vec<String>,
}

impl Endpoints {
    pub(crate) fn new() -> Self {
        let mut schemas = vec![(ProblemBody::name().into_owned(), ProblemBody::schema())];
        ProblemBody::schemas(&mut schemas);
        let schemas = schemas.iter().map(|(name, schema)| (name.clone(), value(schema))).collect();
        Self { router: Router::new(), paths: Map::new(), schemas, collisions: Vec::new() }
    }

    /// Adds an operation.
    pub(crate) fn add<H, T>(&mut self, endpoint: Endpoint, handler: H)
    where
        H: Handler<T, Shared>,
        T: 'static,
    {
        let operation = endpoint.operation();
        let keyless = endpoint.verb == "post" && !endpoint.takes(KEY_HEADER);
        let path = self.paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[endpoint.verb] = operation;
        for (name, schema) in endpoint.schemas {
            let known = self.schemas.entry(name.clone()).or_insert_with(|| schema.clone());
            if *known != schema {
                self.collisions.push(name);
            }
        }
        let mut method = on(endpoint.method, handler);
        if keyless {
            method = method.route_layer(from_fn(chores::without_key));
        }
        if let Some(caching) = endpoint.etag {
            let compare = move |request: Request, next: Next| etag::compare(caching, request, next);
            method = method.route_layer(from_fn(compare));
        }
        if let Some(role) = endpoint.role {
            let check = move |request: Request, next: Next| access::require(role, request, next);
            method = method.route_layer(from_fn(check));
        }
        let router = std::mem::take(&mut self.router);
        self.router = router.route(endpoint.path, method);
    }

    /// The router, the paths and the schemas.
    pub(crate) fn into_parts(self) -> (Router<Shared>, Map<String, Value>, Map<String, Value>) {
        (self.router, self.paths, self.schemas)
    }
}
