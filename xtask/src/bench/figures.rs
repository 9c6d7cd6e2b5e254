//! Several measurements of the same thing, and how they are told.

/// The middle and the ends of some figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    /// None when there are no figures.
    pub(super) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let (least, most) = (*figures.first()?, *figures.last()?);
        let middle = figures.len() / 2;
        let median = if figures.len().is_multiple_of(2) {
            (figures[middle - 1] + figures[middle]) / 2.0
        } else {
            figures[middle]
        };
        Some(Self { median, least, most })
    }
}

/// A figure with as many digits as matter.
pub(super) fn short(figure: f64) -> String {
    match figure {
        _ if figure >= 100.0 => thousands(figure.round() as u64),
        _ if figure >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

/// A whole number with its thousands separated.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Lines whose columns stand below each other; the columns named in `left` are aligned to the left.
pub(super) fn table(rows: &[Vec<String>], left: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let padding = " ".repeat(width - cell.chars().count());
            if left.contains(&column) {
                line.extend([cell.as_str(), &padding, "  "]);
            } else {
                line.extend([padding.as_str(), cell, "  "]);
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, least: 1.0, most: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).map(|it| it.median), Some(2.5));
    }

    #[test]
    fn figures_are_readable() {
        assert_eq!(short(1_234_567.4), "1,234,567");
        assert_eq!(short(12.34), "12.3");
        assert_eq!(short(1.234), "1.23");
    }

    #[test]
    fn columns_stand_below_each_other() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["bcd".to_owned(), "22".to_owned()]];
        assert_eq!(table(&rows, &[0]), "a     1\nbcd  22\n");
    }
}
