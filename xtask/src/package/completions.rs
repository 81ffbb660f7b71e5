//! Completions of bash, zsh and fish, made from the tables of both programs.

use std::collections::BTreeSet;

use super::manual_pages::{AdminRow, ProgramTables};

/// The commands of `larder` itself.
const LARDER_WORDS: &str = "server check repair healthcheck settings";
/// Options of `kv-admin`, as its help has them.
const ADMIN_OPTIONS: &str = "--socket --json --key --secret-file --id --read-only --bucket --prefix --expires --verify";

/// The completion of bash for both programs; zsh takes it, too, through `bashcompinit`.
pub(super) fn bash(tables: &ProgramTables) -> String {
    let flags: Vec<&str> = tables.settings.iter().map(|row| row.flag.as_str()).collect();
    let larder = format!("{LARDER_WORDS} --config --help --version {}", flags.join(" "));
    let phrases: Vec<String> = tables.commands.iter().map(|row| request_words(row).join(" ")).collect();
    format!(
        "# Completion of larder and kv-admin. Made from their tables.\n\
         _larder() {{\n    COMPREPLY=($(compgen -W '{larder}' -- \"${{COMP_WORDS[COMP_CWORD]}}\"))\n}}\n\
         _kv_admin() {{\n    \
             local word=\"${{COMP_WORDS[COMP_CWORD]}}\" before=\"\" at phrase rest words=\"{ADMIN_OPTIONS}\"\n    \
             for ((at = 1; at < COMP_CWORD; at++)); do\n        \
                 case \"${{COMP_WORDS[at]}}\" in --socket) ((at++)) ;; -*) ;; *) before+=\"${{COMP_WORDS[at]}} \" ;; esac\n    \
             done\n    \
             while read -r phrase; do\n        \
                 [[ \"$phrase \" == \"$before\"* ]] || continue\n        \
                 rest=\"${{phrase:${{#before}}}}\"\n        \
                 [[ \" $words \" == *\" ${{rest%% *}} \"* ]] || words+=\" ${{rest%% *}}\"\n    \
             done <<'COMMANDS'\n{}\nCOMMANDS\n    \
             COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}}\n\
         complete -o default -F _larder larder\ncomplete -o default -F _kv_admin kv-admin\n",
        phrases.join("\n")
    )
}

/// The completion of zsh, which runs that of bash.
pub(super) fn zsh() -> &'static str {
    "#compdef larder kv-admin\nautoload -Uz bashcompinit && bashcompinit\n\
     source /usr/share/bash-completion/completions/larder\n\
     (( $+functions[_bash_complete] )) && case $service in\n    larder) _bash_complete -o default -F _larder ;;\n    kv-admin) _bash_complete -o default -F _kv_admin ;;\nesac\n"
}

/// The completion of fish.
pub(super) fn fish(tables: &ProgramTables) -> String {
    let mut lines: Vec<String> =
        LARDER_WORDS.split(' ').map(|word| format!("complete -c larder -n __fish_use_subcommand -a {word}")).collect();
    lines.extend(tables.settings.iter().map(|row| {
        let first = row.meaning.split(['.', ';']).next().unwrap_or_default();
        format!("complete -c larder -l {} -r -d {}", row.flag.trim_start_matches('-'), quoted(first))
    }));
    let mut seen = BTreeSet::new();
    for row in &tables.commands {
        let words = request_words(row);
        for (index, word) in words.iter().enumerate() {
            let before = words[..index].join(" ");
            if seen.insert((before.clone(), word.clone())) {
                let condition = match before.as_str() {
                    "" => "__fish_use_subcommand".to_owned(),
                    before => format!("test \"(commandline -opc)[2..-1]\" = {before:?}"),
                };
                let meaning = if index + 1 == words.len() { row.meaning.as_str() } else { "" };
                lines.push(format!(
                    "complete -c kv-admin -f -n {} -a {word} -d {}",
                    quoted(&condition),
                    quoted(meaning)
                ));
            }
        }
    }
    lines.join("\n") + "\n"
}

/// The words of a command without its arguments.
fn request_words(row: &AdminRow) -> Vec<String> {
    let is_word = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    row.usage.split_whitespace().take_while(is_word).map(str::to_owned).collect()
}

/// A word in single quotes, as fish reads them.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::super::manual_pages::tests::tables;
    use super::*;
    use std::process::Command;

    /// The words that bash offers after a command line.
    fn offered(function: &str, words: &[&str]) -> Vec<String> {
        let line: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let script = format!(
            "{}\nCOMP_WORDS=({})\nCOMP_CWORD={}\n{function}\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"",
            bash(&tables()),
            line.join(" "),
            words.len() - 1
        );
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    #[test]
    fn bash_offers_the_next_word_of_each_command() {
        assert_eq!(offered("_kv_admin", &["kv-admin", "p"]), ["ping"]);
        assert_eq!(offered("_kv_admin", &["kv-admin", "--socket", "/s", "s3", "u"]), ["user"]);
        let mut after = offered("_kv_admin", &["kv-admin", "s3", "user", ""]);
        after.retain(|word| !word.starts_with('-'));
        assert_eq!(after, ["create", "disable"]);
        assert_eq!(offered("_larder", &["larder", "--ht"]), ["--http"]);
    }

    #[test]
    fn fish_has_a_line_for_each_word() {
        let fish = fish(&tables());
        assert!(fish.contains("complete -c larder -l http -r -d 'Where it listens'"), "{fish}");
        assert_eq!(fish.matches("-a user").count(), 1, "{fish}");
    }
}
