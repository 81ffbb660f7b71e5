//! Proof that each rule of the design is needed: a test passes with the rule and fails without it.
//!
//! ```text
//! tests/mutants/NAME.toml ──> a copy of the sources with every mutation behind a switch ──> built once a test target
//!     rule, race, test, edits                                                                │
//!                                              LARDER_MUTANT unset: the test passes  <───────┤
//!                                              LARDER_MUTANT=NAME:  the test fails   <───────┘
//! ```
//! The product itself holds no wrong branch. A mutation whose lines the sources no longer contain is an error.

mod execution;
mod mutation;
mod tree;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

pub(crate) use mutation::{Mutation, read_all};

use crate::report::minutes;
use crate::shell::{Result, Shell};
use execution::{Ending, Executable};
use mutation::TestTarget;

/// The directory of the mutations, from the root.
pub(crate) const DIRECTORY: &str = "tests/mutants";

/// The mutations to try.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct MutantOptions {
    /// Mutations by name; all of them unless some are named.
    names: Vec<String>,
    /// Try so many, chosen by the seed.
    #[arg(long, conflicts_with = "names")]
    sample: Option<usize>,
    /// Chooses the sample.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl MutantOptions {
    /// Options for a sample of this size.
    pub(crate) fn sample(count: usize, seed: u64) -> Self {
        Self { names: Vec::new(), sample: Some(count), seed }
    }

    /// Options for all mutations.
    pub(crate) fn all() -> Self {
        Self { names: Vec::new(), sample: None, seed: 0 }
    }
}

/// Tries mutations and prints a line for each.
///
/// # Errors
/// A mutation that does not apply, a test that fails without it, or one that passes with it.
pub(crate) fn mutants(shell: &Shell, options: &MutantOptions) -> Result<()> {
    let begun = Instant::now();
    let all = read_all(&shell.path(DIRECTORY))?;
    let tree = tree::copy(shell, &all)?;
    let mut by_target: BTreeMap<TestTarget, Vec<Mutation>> = BTreeMap::new();
    for mutation in choose(all, options)? {
        by_target.entry(mutation.target.clone()).or_default().push(mutation);
    }
    let (mut tried, mut wrong) = (0, Vec::new());
    for (target, mutations) in by_target {
        let executable = Executable::build(shell, &tree, &target)?;
        for mutation in mutations {
            tried += 1;
            executable.check_has(shell, &mutation.test)?;
            wrong.extend(try_one(&executable, &mutation)?);
        }
    }
    let took = minutes(begun.elapsed());
    if wrong.is_empty() {
        println!("mutants: {tried} mutations, each caught by its test, in {took}");
        return Ok(());
    }
    Err(format!("mutants: {} of {tried} not as they should be, in {took}\n{}", wrong.len(), wrong.join("\n")))
}

/// Runs the test of a mutation with the rule and without it; what is wrong with that.
fn try_one(executable: &Executable, mutation: &Mutation) -> Result<Option<String>> {
    let Mutation { name, test, rule, race, .. } = mutation;
    let without = executable.run(mutation, false)?;
    if without != Ending::Passed {
        return Ok(Some(format!("{name}: {test} {without} without the mutation")));
    }
    let with = executable.run(mutation, true)?;
    println!("{name}: {test} {with} without the rule: {rule}");
    let survives = || format!("{name}: {test} passes without the rule, so it does not show the race: {race}");
    Ok((with == Ending::Passed).then(survives))
}

fn choose(all: Vec<Mutation>, options: &MutantOptions) -> Result<Vec<Mutation>> {
    if let Some(unknown) = options.names.iter().find(|name| all.iter().all(|one| one.name != **name)) {
        return Err(format!("{DIRECTORY}/{unknown}.toml: there is no such mutation"));
    }
    let Some(count) = options.sample else {
        let is_wanted = |one: &Mutation| options.names.is_empty() || options.names.contains(&one.name);
        return Ok(all.into_iter().filter(is_wanted).collect());
    };
    println!("mutants: a sample of {count}, seed {}", options.seed);
    Ok(sample(all, count, options.seed))
}

/// So many of them at even distances; the seed chooses the first.
fn sample<T>(mut all: Vec<T>, count: usize, seed: u64) -> Vec<T> {
    let length = all.len().max(1);
    all.rotate_left((seed % length as u64) as usize);
    all.into_iter().step_by((length / count.max(1)).max(1)).take(count).collect()
}

/// Sources of the mutated copy, and where it is built.
#[derive(Debug, Clone)]
struct MutatedTree {
    root: PathBuf,
    build: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_each_mutation_once_and_follows_its_seed() {
        let chosen = |seed| sample((0..40).collect::<Vec<_>>(), 8, seed);
        let mut sorted = chosen(1);
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 8);
        assert_eq!(chosen(1), chosen(1));
        assert_ne!(chosen(1), chosen(2));
        assert_eq!(sample(vec![1, 2], 8, 0).len(), 2);
    }

    #[test]
    fn all_mutations_of_this_repository_apply_to_one_tree() {
        let shell = Shell::at_root();
        let mut texts = BTreeMap::new();
        for mutation in read_all(&shell.path(DIRECTORY)).unwrap() {
            for path in mutation.files() {
                let text = texts.remove(path).unwrap_or_else(|| std::fs::read_to_string(shell.path(path)).unwrap());
                texts.insert(path.to_owned(), mutation.applied(path, text).unwrap());
            }
        }
    }
}
