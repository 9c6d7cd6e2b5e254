//! The OpenAPI 3.1 document: what the operations say of themselves, and what is said once for all.

use serde_json::{Map, Value, json};

const DESCRIPTION: &str = "\
Reliable background work on the database you already run.

Times are RFC 3339, durations are numbers of seconds. Fields that are not known are refused. Problems are RFC 9457; programs match on \
their `type`. Lists come in pages: give `next_cursor` as `cursor`, with the same other parameters.";

/// The document as it is served.
pub(crate) fn document(paths: Map<String, Value>, schemas: Map<String, Value>) -> String {
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Mainstay", "version": "1", "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "parameters": {
                "Store": {
                    "name": "store", "in": "query", "required": false,
                    "description": "The database, where there are several: an id of `GET /v1/stores`.",
                    "schema": {"type": "string"},
                },
            },
            "responses": {
                "Problem": {
                    "description": "It was not done; `type` says why.",
                    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
                },
            },
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A token of `mainstay token new`."},
            },
        },
    });
    // Texts, numbers and lists only, which can always be written.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}
