//! A cron expression read in the plainest way: a table of what is allowed, field by field.

/// What a minute (or second) of the calendar looks like to cron.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) second: usize,
    pub(crate) minute: usize,
    pub(crate) hour: usize,
    pub(crate) day: usize,
    pub(crate) month: usize,
    pub(crate) weekday: usize,
}

/// Numbers, names, lists, ranges and steps; what else there is has tests of its own.
pub(crate) struct Expression {
    allowed: [Vec<bool>; 6],
    any_day: bool,
    any_weekday: bool,
    pub(crate) fixed: bool,
}

impl Expression {
    pub(crate) fn new(text: &str) -> Self {
        let mut fields: Vec<_> = text.split_whitespace().collect();
        if fields.len() == 5 {
            fields.insert(0, "0");
        }
        let most = [59, 59, 23, 31, 12, 7];
        let allowed = std::array::from_fn(|n| {
            let mut table: Vec<_> = (0..=most[n]).map(|value| allows(fields[n], value, most[n])).collect();
            if n == 5 {
                table[0] = table[0] || table[7];
            }
            table
        });
        Self {
            allowed,
            any_day: fields[3] == "*",
            any_weekday: fields[5] == "*",
            fixed: ["*", "/"].iter().all(|sign| !fields[1].contains(sign) && !fields[2].contains(sign)),
        }
    }

    pub(crate) fn names_minute(&self, minute: usize) -> bool {
        self.allowed[1][minute]
    }

    pub(crate) fn matches(&self, moment: &Moment) -> bool {
        let [second, minute, hour, day, month, weekday] = &self.allowed;
        minute[moment.minute]
            && hour[moment.hour]
            && second[moment.second]
            && month[moment.month]
            && match (self.any_day, self.any_weekday) {
                (true, true) => true,
                (false, true) => day[moment.day],
                (true, false) => weekday[moment.weekday],
                (false, false) => day[moment.day] || weekday[moment.weekday],
            }
    }
}

fn allows(field: &str, value: usize, most: usize) -> bool {
    field.split(',').any(|item| {
        let (range, step) = item.split_once('/').unwrap_or((item, "1"));
        let step: usize = step.parse().unwrap();
        let (low, high) = match range {
            "*" => (if most == 31 || most == 12 { 1 } else { 0 }, most),
            _ => match range.split_once('-') {
                Some((low, high)) => (number(low), number(high)),
                None => (number(range), number(range)),
            },
        };
        (low..=high).contains(&value) && (value - low).is_multiple_of(step)
    })
}

fn number(text: &str) -> usize {
    let names = "SUN MON TUE WED THU FRI SAT";
    match names.split(' ').position(|name| name == text) {
        Some(weekday) => weekday,
        None => text.parse().unwrap(),
    }
}
