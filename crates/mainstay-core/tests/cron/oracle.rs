//! The contract for clock changes, calculated in the plainest way: every wall-clock time of a few days is looked up on
//! the watched clock.

use std::collections::BTreeSet;

use crate::clock::{Clock, moment};
use crate::expression::{Expression, Moment};

/// The wall-clock times of a few days, each with the instants at which the clock shows it.
pub(crate) struct Days {
    /// By the minute of the hour, because most expressions name one and this is walked for each of many.
    walls: [Vec<(Moment, Shown)>; 60],
}

enum Shown {
    /// At these instants, in order.
    At(Vec<i64>),
    /// Never. The clock jumps over it at this instant.
    SkippedAt(i64),
}

impl Days {
    pub(crate) fn new(clock: &Clock) -> Self {
        let (first, last) = (clock.shown[0].1, clock.shown[clock.shown.len() - 1].1);
        let walls: Vec<_> = (0..).map(|n| first + n * clock.tick).take_while(|wall| *wall <= last).collect();
        let mut instants = vec![Vec::new(); walls.len()];
        for (at, wall) in &clock.shown {
            // The clock may show what was before the first look, when it is put back soon after; nobody asks for it.
            if let Ok(n) = usize::try_from((wall - first) / clock.tick) {
                instants[n].push(*at);
            }
        }
        let jumps: Vec<_> =
            clock.shown.windows(2).filter(|pair| pair[1].1 > pair[0].1 + clock.tick).collect();
        let shown = |(wall, instants): (i64, Vec<i64>)| match instants.is_empty() {
            false => (moment(wall), Shown::At(instants)),
            true => {
                let over = jumps.iter().find(|pair| pair[0].1 < wall && wall < pair[1].1);
                let over = over.expect("the clock jumps over what it doesn't show");
                (moment(wall), Shown::SkippedAt(over[1].0))
            }
        };
        let mut by_minute = [const { Vec::new() }; 60];
        for (moment, shown) in walls.into_iter().zip(instants).map(shown) {
            by_minute[moment.minute].push((moment, shown));
        }
        Self { walls: by_minute }
    }

    /// When it fires on these days.
    pub(crate) fn fires(&self, expression: &Expression) -> BTreeSet<i64> {
        let mut fires = BTreeSet::new();
        let walls = self.walls.iter().enumerate().filter(|(minute, _)| expression.names_minute(*minute));
        for (_, shown) in walls.flat_map(|(_, walls)| walls).filter(|(moment, _)| expression.matches(moment))
        {
            match (shown, expression.fixed) {
                (Shown::At(instants), true) => fires.extend(instants.first()),
                (Shown::At(instants), false) => fires.extend(instants),
                (Shown::SkippedAt(at), true) => fires.extend([at]),
                (Shown::SkippedAt(_), false) => {}
            }
        }
        fires
    }
}
