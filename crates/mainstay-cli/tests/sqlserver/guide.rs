//! The T-SQL of the guide does what it says there.

use crate::harness::{Case, cases};
use crate::own_database::OwnDatabase;

pub(crate) const CASES: &[Case] = cases![the_examples_for_other_languages_work];

const GUIDE: &str = include_str!("../../../../docs/guides/sqlserver.md");

/// The example that has this in it.
fn example(part: &str) -> &'static str {
    let blocks = GUIDE.split("```sql\n").skip(1).filter_map(|block| block.split("```").next());
    blocks.into_iter().find(|block| block.contains(part)).unwrap_or_else(|| panic!("no example has {part}"))
}

fn the_examples_for_other_languages_work() {
    let database = OwnDatabase::migrated();
    database.execute(["CREATE TABLE dbo.Orders (Id NVARCHAR(50), Total INT)"]);
    let enqueue = example("EXEC infra.Outbox_Enqueue");
    for (id, topic) in [("1", "order.paid"), ("2", "mail.wanted"), ("3", "order.paid")] {
        let values =
            format!("DECLARE @Id NVARCHAR(50) = N'{id}', @Total INT = 7, @Json NVARCHAR(MAX) = N'{{}}';\n");
        database.execute([(values + &enqueue.replace("order.paid", topic)).as_str()]);
    }
    assert_eq!(database.count("SELECT COUNT(*) FROM dbo.Orders"), 3);
    // It acks the orders, and puts the rest off.
    database.execute([example("DECLARE @Me UNIQUEIDENTIFIER")]);
    assert_eq!(
        database
            .count("SELECT COUNT(*) FROM infra.Outbox_history WHERE Status = 2 AND Topic = N'order.paid'"),
        2
    );
    let later = "SELECT COUNT(*) FROM infra.Outbox WHERE Status = 0 AND Topic = N'mail.wanted' AND DueAt > SYSUTCDATETIME() AND LastError LIKE N'the carrier%'";
    assert_eq!(database.count(later), 1);
}
