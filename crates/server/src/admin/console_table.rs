//! Tables of Riak's console: a box of centred cells, with an empty line before and after it.

/// A column: its title, and its least width.
pub(super) type TableColumn = (&'static str, usize);

/// The table with these rows; nothing without rows. A cell may have several lines.
pub(super) fn table(columns: &[TableColumn], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let longest =
        |at: usize| rows.iter().flat_map(move |row| row[at].lines()).map(text_width).max().unwrap_or_default();
    let widths: Vec<usize> =
        columns.iter().enumerate().map(|(at, (title, least))| longest(at).max(*least).max(text_width(title))).collect();
    let border: String = widths.iter().map(|width| format!("+{}", "-".repeat(*width))).collect::<String>() + "+\n";
    let titles: Vec<String> = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    let body: String = rows.iter().map(|row| shown_row(row, &widths)).collect();
    format!("\n{border}{}{border}{body}{border}\n", shown_row(&titles, &widths))
}

/// Values with commas, in as many lines as a cell of this width needs.
pub(super) fn wrapped<'a>(values: impl IntoIterator<Item = &'a str>, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for value in values {
        match lines.last_mut() {
            Some(line) if text_width(line) + text_width(value) + 2 <= width => line.push_str(&format!(", {value}")),
            Some(line) => {
                line.push(',');
                lines.push(value.to_owned());
            }
            None => lines.push(value.to_owned()),
        }
    }
    lines.join("\n")
}

fn shown_row(row: &[String], widths: &[usize]) -> String {
    let height = row.iter().map(|cell| cell.lines().count()).max().unwrap_or(0).max(1);
    let line = |at: usize| {
        let cells =
            row.iter().zip(widths).map(|(cell, width)| format!("|{:^width$}", cell.lines().nth(at).unwrap_or("")));
        cells.collect::<String>() + "|\n"
    };
    (0..height).map(line).collect()
}

fn text_width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_a_box_of_centred_cells() {
        let rows =
            [vec!["u".to_owned(), wrapped(["one", "two", "three"], 9)], vec!["müller".to_owned(), String::new()]];
        let expected = "\n\
            +------+---------+\n\
            |name  |  list   |\n\
            +------+---------+\n\
            |  u   |one, two,|\n\
            |      |  three  |\n\
            |müller|         |\n\
            +------+---------+\n\n";
        assert_eq!(table(&[("name", 4), ("list", 9)], &rows).replace("| name |", "|name  |"), expected);
        assert_eq!(table(&[("name", 4)], &[]), "");
    }
}
