//! `mainstay joins show`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::join::{Join, JoinMember, MemberPage};
use mainstay::{JoinId, Joins, WorkItemId};
use serde_json::{Value, json};

use crate::commands::outbox;
use crate::output;
use crate::settings::Settings;
use crate::text::{count, counted, harmless, moment};

const EXAMPLES: &str = "\
Examples:
  mainstay joins show 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11
  mainstay joins show 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11 --members --limit 1000
  mainstay joins show 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11 --members --json | jq '.members'

`mainstay outbox show` shows a step that is a message. Times are UTC.";

/// Show a join and how its steps stand
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// The join's id
    #[arg(value_parser = super::parse_id)]
    id: JoinId,
    /// List its members too, by id
    #[arg(long)]
    members: bool,
    /// Members at most, 1 to 1,000
    #[arg(long, value_name = "ROWS", default_value_t = 50, requires = "members", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only members after this id: the last one of the page before
    #[arg(long, value_name = "ID", requires = "members", value_parser = outbox::parse_id)]
    after: Option<WorkItemId>,
}

pub(super) async fn run(
    arguments: &ShowArgs,
    joins: &Joins,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let found = joins.get(arguments.id).await.context("the join can't be read")?;
    let join = found.ok_or_else(|| super::unknown(arguments.id))?;
    let members = match arguments.members {
        true => {
            let page =
                arguments.after.into_iter().fold(MemberPage::first(arguments.limit), MemberPage::after);
            Some(joins.members(join.id, page).await.context("the members can't be listed")?)
        }
        false => None,
    };
    if settings.json {
        output::json(&as_json(&join, members.as_deref()))?;
        return Ok(ExitCode::SUCCESS);
    }
    tell(&join)?;
    if let Some(members) = members {
        tell_members(&members, arguments.limit)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(join: &Join, members: Option<&[JoinMember]>) -> Value {
    let mut value = super::json_of(join);
    if let (Some(fields), Some(members)) = (value.as_object_mut(), members) {
        let each = members.iter().map(|member| {
            json!({
                "work_item": member.work_item,
                "state": member.state.as_str(),
                "updated_at": member.updated_at,
            })
        });
        fields.insert("members".to_owned(), each.collect());
    }
    value
}

fn tell(join: &Join) -> anyhow::Result<()> {
    let number = |number: u32| count(number.into());
    let mut rows = vec![("id", join.id.to_string())];
    rows.extend(join.grouping_key.clone().map(|key| ("grouping key", key)));
    rows.extend([
        ("mode", super::mode_of(join)),
        ("state", super::standing(join)),
        ("expected", number(join.expected)),
        ("completed", number(join.completed)),
        ("failed", number(join.failed)),
        ("started", moment(join.created_at)),
        ("changed", moment(join.updated_at)),
    ]);
    rows.extend(join.deadline_at.map(|at| ("deadline", moment(at))));
    rows.extend(join.ended_at.map(|at| ("ended", moment(at))));
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    for (name, value) in rows {
        output::line(format_args!("{name:width$}  {}", harmless(&value)))?;
    }
    Ok(())
}

fn tell_members(members: &[JoinMember], limit: u32) -> anyhow::Result<()> {
    if members.is_empty() {
        return output::line("no members");
    }
    let mut table = output::table(["member", "state", "changed"]);
    for member in members {
        table.add_row([member.work_item.to_string(), member.state.to_string(), moment(member.updated_at)]);
    }
    output::line("")?;
    output::print(&table)?;
    if members.len() == limit as usize
        && let Some(last) = members.last()
    {
        let shown = counted(members.len() as u64, "member");
        output::note(format_args!("{shown} shown; there may be more: --after {}", last.work_item));
    }
    Ok(())
}
