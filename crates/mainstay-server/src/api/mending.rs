//! Bodies and answers of what is done by hand to several things at once.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Which ones.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Ids)]
pub(super) struct IdsBody {
    /// Their ids.
    pub(super) ids: Vec<Uuid>,
}

/// Which ones were changed.
#[derive(Serialize, ToSchema)]
#[schema(as = ChangedIds)]
pub(super) struct ChangedView {
    /// The ids of those that were changed. The others stand otherwise, or are not there.
    pub(super) changed: Vec<Uuid>,
}

/// Whether it was changed.
#[derive(Serialize, ToSchema)]
#[schema(as = Changed)]
pub(super) struct ChangeView {
    /// False if it was so already.
    pub(super) changed: bool,
}
