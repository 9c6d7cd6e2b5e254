//! Pages of a listing. A cursor is the key of the last item, in a wrapping that tells lists apart and nobody has to understand.

use std::borrow::Cow;

use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::problem::Problem;
use crate::ticket;

/// Items of a page, unless told otherwise.
pub(crate) const LIMIT: u32 = 100;

/// A page of a listing.
#[derive(Serialize)]
pub(crate) struct Page<T: ToSchema> {
    items: Vec<T>,
    next_cursor: Option<String>,
}

/// By hand: each list has a schema of its own, and the derived one would have the same name for all.
impl<T: ToSchema> PartialSchema for Page<T> {
    fn schema() -> RefOr<Schema> {
        let item = Ref::from_schema_name(T::name());
        let items = ArrayBuilder::new().items(item).description(Some("The items."));
        let types = SchemaType::from_iter([Type::String, Type::Null]);
        let told = "What to give as `cursor` for the next page. Null when there is none.";
        let next = ObjectBuilder::new().schema_type(types).description(Some(told));
        let page = ObjectBuilder::new().property("items", items).property("next_cursor", next);
        page.required("items").required("next_cursor").description(Some("A page of a listing.")).into()
    }
}

impl<T: ToSchema> ToSchema for Page<T> {
    fn name() -> Cow<'static, str> {
        format!("{}Page", T::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(schemas);
    }
}

impl<T: ToSchema> Page<T> {
    /// A page of what was found when asked for `limit`. `key` is what the next page goes on after.
    pub(crate) fn of<F, K: Serialize>(
        list: &str,
        limit: u32,
        found: Vec<F>,
        key: impl Fn(&F) -> K,
        view: impl Fn(F) -> T,
    ) -> Self {
        // One that is exactly full may be the last; the next one is then empty.
        let full = found.len() >= limit as usize;
        Self::so_far(list, full, found, key, view)
    }

    /// A page that others follow, or the last.
    pub(crate) fn so_far<F, K: Serialize>(
        list: &str,
        more: bool,
        found: Vec<F>,
        key: impl Fn(&F) -> K,
        view: impl Fn(F) -> T,
    ) -> Self {
        let next_cursor = found.last().filter(|_| more).map(|last| ticket::write(list, &key(last)));
        Self { items: found.into_iter().map(view).collect(), next_cursor }
    }
}

/// The key in a cursor of this list.
pub(crate) fn read<K: DeserializeOwned>(list: &str, cursor: Option<&str>) -> Result<Option<K>, Problem> {
    let wrong = |_| {
        Problem::invalid(
            "cursor",
            "must be the next_cursor of a page of this list; leave it out for the first page",
        )
    };
    cursor.map(|cursor| ticket::read(list, "cursor", cursor)).transpose().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_good_for_its_own_list_only() {
        let cursor = ticket::write("jobs", &"nightly");
        assert_eq!(read::<String>("jobs", Some(&cursor)).unwrap().as_deref(), Some("nightly"));
        assert_eq!(read::<String>("jobs", None).unwrap(), None);
        for wrong in [cursor.as_str(), "", "!", "e30"] {
            assert_eq!(read::<String>("leases", Some(wrong)).unwrap_err().status().as_u16(), 422, "{wrong}");
        }
    }

    #[test]
    fn a_page_that_is_not_full_is_the_last() {
        let page = |limit| Page::of("t", limit, vec![1_u32, 2], |item| *item, |item| item);
        assert!(page(2).next_cursor.is_some() && page(3).next_cursor.is_none());
    }
}
