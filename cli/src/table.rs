//! Tables of text.

use comfy_table::{Table, presets};

/// Columns as wide as their widest cell.
pub(crate) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if !header.is_empty() {
        table.set_header(header.iter().copied());
    }
    table.add_rows(rows);
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    format!("{}\n", table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "-"], ["longer", "é"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&["NAME", "X"], rows), "NAME    X\na       -\nlonger  é\n");
    }
}
