//! A line of values as the points of an SVG polyline. The newest value is at the right edge.

use std::fmt::Write as _;

/// Width of the picture, in its own units.
pub(crate) const LINE_WIDTH: u32 = 600;
/// Height of the picture, in its own units.
pub(crate) const LINE_HEIGHT: u32 = 80;
/// Room above and below the line.
const MARGIN: f64 = 4.0;

/// The points of at most `places` values. The greatest value is at the top; a line of zeros lies at the bottom.
pub(super) fn points(values: &[f64], places: usize) -> String {
    let greatest = values.iter().copied().fold(0.0, f64::max);
    let step = f64::from(LINE_WIDTH) / places.saturating_sub(1).max(1) as f64;
    let first = places.saturating_sub(values.len());
    let height = f64::from(LINE_HEIGHT) - 2.0 * MARGIN;
    let mut out = String::with_capacity(values.len() * 12);
    for (at, value) in values.iter().enumerate() {
        let x = (first + at) as f64 * step;
        let share = if greatest > 0.0 { value / greatest } else { 0.0 };
        let y = MARGIN + height * (1.0 - share);
        let space = if at == 0 { "" } else { " " };
        let _ = write!(out, "{space}{x:.1},{y:.1}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_value_is_at_the_right_edge() {
        assert_eq!(points(&[], 5), "");
        assert_eq!(points(&[0.0, 0.0], 5), "450.0,76.0 600.0,76.0");
        assert_eq!(points(&[5.0, 10.0, 0.0], 3), "0.0,40.0 300.0,4.0 600.0,76.0");
    }
}
