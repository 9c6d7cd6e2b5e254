//! The databases behind the interface: one, or those of a fleet.

use mainstay_core::fleet::Fleet;
use mainstay_core::runtime::Mainstay;

use crate::problem::Problem;

/// What the only database is called.
pub(crate) const ONLY: &str = "default";

/// The databases behind the interface.
#[derive(Debug, Clone)]
pub enum Stores {
    /// One. Requests need not name it.
    One(Mainstay),
    /// Those of a fleet. Requests name theirs with `?store=ID`.
    Fleet(Fleet),
}

impl From<Mainstay> for Stores {
    fn from(mainstay: Mainstay) -> Self {
        Self::One(mainstay)
    }
}

impl From<Fleet> for Stores {
    fn from(fleet: Fleet) -> Self {
        Self::Fleet(fleet)
    }
}

impl Stores {
    /// The database that a request names.
    pub(crate) fn get(&self, id: Option<&str>) -> Result<Mainstay, Problem> {
        match (self, id) {
            (Self::One(mainstay), None | Some(ONLY)) => Ok(mainstay.clone()),
            (Self::One(_), Some(id)) => Err(Problem::not_found(format_args!("store {id:?}; leave it out"))),
            (Self::Fleet(fleet), Some(id)) => Ok(fleet.mainstay(id)?),
            (Self::Fleet(_), None) => Err(Problem::invalid(
                "store",
                "must be given: there are several databases, which GET /v1/stores lists",
            )),
        }
    }
}
