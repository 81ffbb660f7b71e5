//! `cargo xtask chart`: draws the figures of `docs/comparison.toml` as bars, in `docs/comparison.svg`.

use std::fmt::Write as _;
use std::fs;

use toml::{Table, Value};

use crate::shell::{Result, Shell};

const FIGURES: &str = "docs/comparison.toml";
const PICTURE: &str = "docs/comparison.svg";

const WIDTH: u32 = 760;
/// Where bars begin: names are left of it.
const BARS_BEGIN: u32 = 200;
/// The length of the longest bar of a group; its figure is right of it.
const BAR_MAX: u32 = 460;
const BAR_HEIGHT: u32 = 18;
const GROUP_GAP: u32 = 18;
const TITLE_HEIGHT: u32 = 24;

/// The colours, light and dark. Bars of other servers are grey.
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#1b211f}.t{font-weight:600}.n{text-anchor:end}\
                     .l{fill:#14614f}.o{fill:#8a9691}\
                     @media(prefers-color-scheme:dark){text{fill:#e6ebe9}.l{fill:#7ed0b8}.o{fill:#6d7975}}";

/// One comparison: its title, and each server with its figure.
#[derive(Debug, PartialEq, Eq)]
struct FigureGroup {
    title: String,
    bars: Vec<(String, u64)>,
}

/// Draws the picture.
///
/// # Errors
/// The figures cannot be read, or the picture not written.
pub(crate) fn chart(shell: &Shell) -> Result<()> {
    let text = fs::read_to_string(shell.path(FIGURES)).map_err(|error| format!("{FIGURES}: {error}"))?;
    let picture = svg(&comparisons(&text)?);
    fs::write(shell.path(PICTURE), picture).map_err(|error| format!("{PICTURE}: {error}"))
}

fn comparisons(text: &str) -> Result<Vec<FigureGroup>> {
    let bad = || format!("{FIGURES}: each [[group]] has a title and bars, such as [[\"Larder\", 100]]");
    let table: Table = text.parse().map_err(|error| format!("{FIGURES}: {error}"))?;
    let groups = table.get("group").and_then(Value::as_array).ok_or_else(bad)?;
    let bar = |bar: &Value| match bar.as_array().map(Vec::as_slice) {
        Some([Value::String(name), Value::Integer(figure)]) => Some((name.clone(), u64::try_from(*figure).ok()?)),
        _ => None,
    };
    let group = |group: &Value| {
        let bars = group.get("bars")?.as_array()?.iter().map(bar).collect::<Option<Vec<_>>>()?;
        Some(FigureGroup { title: group.get("title")?.as_str()?.to_owned(), bars })
    };
    groups.iter().map(|value| group(value).ok_or_else(bad)).collect()
}

fn svg(groups: &[FigureGroup]) -> String {
    let (mut body, mut top) = (String::new(), 0);
    for FigureGroup { title, bars } in groups {
        let _ = writeln!(body, "<text class=\"t\" x=\"0\" y=\"{}\">{}</text>", top + 15, escaped(title));
        top += TITLE_HEIGHT;
        let most = bars.iter().map(|(_, figure)| *figure).max().unwrap_or(1).max(1);
        for (name, figure) in bars {
            let length = (*figure * u64::from(BAR_MAX) / most).max(1);
            let class = if name == "Larder" { "l" } else { "o" };
            let (line, height) = (top + 14, BAR_HEIGHT - 4);
            let (name_end, figure_begin) = (BARS_BEGIN - 8, u64::from(BARS_BEGIN) + length + 8);
            let name = escaped(name);
            let _ = writeln!(
                body,
                "<text class=\"n\" x=\"{name_end}\" y=\"{line}\">{name}</text>\
                 <rect class=\"{class}\" x=\"{BARS_BEGIN}\" y=\"{}\" width=\"{length}\" height=\"{height}\" rx=\"2\"/>\
                 <text x=\"{figure_begin}\" y=\"{line}\">{}/s</text>",
                top + 2,
                thousands(*figure)
            );
            top += BAR_HEIGHT;
        }
        top += GROUP_GAP;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" width=\"{WIDTH}\" height=\"{top}\" role=\"img\">\n\
         <title>Requests a second beside other servers</title>\n<style>{STYLE}</style>\n{body}</svg>\n"
    )
}

/// A number with commas between its thousands.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let split = |(at, digit): (usize, char)| {
        let comma = at > 0 && (digits.len() - at).is_multiple_of(3);
        comma.then_some(',').into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(split).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_shows_the_figures() {
        let groups = comparisons(include_str!("../../docs/comparison.toml")).unwrap();
        assert!(groups.iter().all(|group| group.bars[0].0 == "Larder" && group.bars.len() > 1), "{groups:?}");
        assert!(include_str!("../../docs/comparison.svg") == svg(&groups), "run `cargo xtask chart`");
    }

    #[test]
    fn the_longest_bar_has_its_whole_length_and_the_others_their_part() {
        let groups =
            comparisons("[[group]]\ntitle = \"A & B\"\nbars = [[\"Larder\", 1000], [\"Other\", 250]]").unwrap();
        let picture = svg(&groups);
        assert!(picture.contains("A &amp; B") && picture.contains(">1,000/s<"), "{picture}");
        assert!(picture.contains("width=\"460\"") && picture.contains("width=\"115\""), "{picture}");
        for text in ["[[group]]\ntitle = \"A\"", "group = 1", "[[group]]\ntitle = \"A\"\nbars = [[\"L\", -1]]"] {
            assert!(comparisons(text).is_err(), "{text}");
        }
    }
}
