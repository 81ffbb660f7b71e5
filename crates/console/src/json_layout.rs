//! JSON for people: a line for each member, indented. Only spaces between its parts change: numbers and texts stay as they are.

use serde_json::Value;

use crate::escaped::shown_lines;

const STEP: &str = "  ";

/// The text in lines, if it is JSON.
pub(crate) fn indented(json: &[u8]) -> Option<String> {
    serde_json::from_slice::<Value>(json).ok()?;
    let (mut out, mut depth) = (String::with_capacity(json.len() * 2), 0_usize);
    let (mut in_text, mut is_escaped) = (false, false);
    let text = std::str::from_utf8(json).ok()?;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if in_text {
            out.push(c);
            in_text = is_escaped || c != '"';
            is_escaped = !is_escaped && c == '\\';
            continue;
        }
        match c {
            ' ' | '\t' | '\r' | '\n' => {}
            '{' | '[' => {
                out.push(c);
                while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
                match chars.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => out.push(end),
                    None => {
                        depth += 1;
                        begin_line(&mut out, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                begin_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                begin_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            _ => {
                out.push(c);
                in_text = c == '"';
            }
        }
    }
    Some(shown_lines(out.as_bytes()))
}

fn begin_line(out: &mut String, depth: usize) {
    out.push('\n');
    // Bound: deep nesting would otherwise make each line as long as the text.
    out.extend(std::iter::repeat_n(STEP, depth.min(32)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_laid_out_and_its_values_stay() {
        let text = br#"{"a":[1,2.50,1e400],"b":{},"c":[ ],"d":"x\"{,}\\","e":{"f":null}}"#;
        let lines = "{\n  \"a\": [\n    1,\n    2.50,\n    1e400\n  ],\n  \"b\": {},\n  \"c\": [],\n  \
                     \"d\": \"x\\\"{,}\\\\\",\n  \"e\": {\n    \"f\": null\n  }\n}";
        assert_eq!(indented(text).unwrap(), lines);
        assert_eq!(indented(lines.as_bytes()).unwrap(), lines, "what is laid out stays so");
        assert_eq!(indented(b"12").unwrap(), "12");
        assert!(indented(b"{a:1}").is_none() && indented(b"").is_none() && indented(b"text").is_none());
    }
}
