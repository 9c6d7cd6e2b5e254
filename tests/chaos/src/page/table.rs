//! Tables of Markdown.

/// Appends a table.
pub(super) fn table<R: IntoIterator<Item = String>>(
    page: &mut String,
    head: &[&str],
    rows: impl IntoIterator<Item = R>,
) {
    line(page, head.iter().map(|cell| (*cell).to_owned()));
    page.push_str(&format!("|{}\n", "---|".repeat(head.len())));
    for row in rows {
        line(page, row);
    }
}

fn line(page: &mut String, cells: impl IntoIterator<Item = String>) {
    page.push('|');
    for cell in cells {
        page.push_str(&format!(" {} |", cell.replace('|', "\\|")));
    }
    page.push('\n');
}

/// Writes a number with a comma for every three digits.
pub(super) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        let numbers = [0, 999, 1_000, 12_345, 1_234_567].map(number);
        assert_eq!(numbers, ["0", "999", "1,000", "12,345", "1,234,567"]);
    }

    #[test]
    fn a_cell_does_not_end_its_table() {
        let mut page = String::new();
        table(&mut page, &["a"], [["x|y".to_owned()]]);
        assert_eq!(page, "| a |\n|---|\n| x\\|y |\n");
    }
}
