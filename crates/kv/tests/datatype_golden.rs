//! Golden scripts of data types: the updates of one key, and after each read its value, its context or its rows as they are
//! stored. A change of stored bytes or of semantics fails here with the name of the script.
//!
//! ```text
//! type counter | set | gset | map | hll        precision 4
//! g1: count 5, or -5          of a counter         all clauses of a line are one request:  [with c] [id r1] [large]
//! g1: add a b, remove c       of a set             with: the context that was read as c     id: of the request
//! g1: tags_set add a, in_map/n_counter count 2, r_register assign x, f_flag enable, remove r_register        of a map
//! g1: delete [with c] [large]                      large: the part is too large to be removed row by row
//! read [as c]                 prints the value, and keeps its context as c
//! context                     prints the context of a read as a client gets it
//! rows                        prints name, stamp and value of each row; one that expires has a star
//! ```
//! A refused request prints its error. The clock begins at 1000 and goes on with every line.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails where an expectation does not hold")]

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use larder_kv::rules::datatypes::{
    Datatype, DatatypeContext, DatatypeEditor, DatatypeHead, DatatypePath, DatatypeRowName, DatatypeUpdate,
    DatatypeValue, EditorTerms, EmbeddedType, EmbeddedUpdate, EmbeddedValue, FieldEdit, FieldName, FieldValue,
    MapEdits, SetEdit, ValueBuilder, ValueDecoder,
};
use larder_rows::address::{Address, BucketAddress};
use larder_rows::{ActorId, Change, Row, Timestamp};

#[test]
fn every_script_of_a_data_type_prints_its_expected_output() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/datatype/golden");
    let (mut ran, mut failed) = (0, Vec::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let (script, expected) = text.split_once("---\n").expect("a script and its output");
        let printed = run(script);
        if printed != expected {
            failed.push(format!("{}\n{printed}", path.display()));
        }
        ran += 1;
    }
    assert!(failed.is_empty(), "other output than expected:\n\n{}", failed.join("\n"));
    assert!(ran >= 20, "{ran} scripts ran");
}

struct ScriptedKey {
    datatype: Datatype,
    precision: u8,
    clock: u64,
    rows: BTreeMap<Bytes, Row>,
    contexts: HashMap<String, DatatypeContext>,
    printed: String,
}

/// A request of a line.
#[derive(Default)]
struct ScriptedRequest<'a> {
    edits: Vec<Vec<&'a str>>,
    context: Option<DatatypeContext>,
    id: Option<Bytes>,
    is_large: bool,
}

fn run(script: &str) -> String {
    let mut key = ScriptedKey {
        datatype: Datatype::Set,
        precision: 14,
        clock: 1000,
        rows: BTreeMap::new(),
        contexts: HashMap::new(),
        printed: String::new(),
    };
    script.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).for_each(|line| key.step(line));
    key.printed
}

impl ScriptedKey {
    fn step(&mut self, line: &str) {
        self.clock += 1;
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["type", name] => self.datatype = *Datatype::ALL.iter().find(|one| one.name() == name).unwrap(),
            ["precision", bits] => self.precision = bits.parse().unwrap(),
            ["read"] => drop(self.read()),
            ["read", "as", name] => {
                let context = self.read();
                self.contexts.insert(name.to_owned(), via_client(&context));
            }
            ["context"] => {
                let (_, context) = self.value();
                self.print(&context.encode(&address(), Timestamp::MAX).escape_ascii().to_string());
            }
            ["rows"] => self.print_rows(),
            [gateway, ..] => {
                let actor = gateway.strip_prefix('g').and_then(|rest| rest.strip_suffix(':')).expect("g1: ...");
                self.request(ActorId(actor.parse().unwrap()), &line[gateway.len()..]);
            }
            [] => {}
        }
    }

    fn request(&mut self, actor: ActorId, text: &str) {
        let request = self.parsed(text);
        let terms = EditorTerms {
            actor,
            clock: Timestamp(self.clock),
            confirmed: None,
            precision: self.precision,
            forget: Timestamp(self.clock + 86_400),
        };
        let oversized = if request.is_large { vec![DatatypePath::root()] } else { Vec::new() };
        let oversized = oversized.into_iter().chain(self.removed_parts(&request)).collect();
        let data = self.rows.values().filter(|row| row.name >= DatatypeRowName::DATA).cloned();
        let mut editor = DatatypeEditor::new(terms, self.head(), data, oversized);
        let done = match request.edits[..] {
            [ref only] if only[..] == ["delete"] => editor.delete(request.context.as_ref()),
            ref edits => editor.update(&update(self.datatype, edits), request.context.as_ref(), request.id.as_ref()),
        };
        match done {
            Ok(()) => editor.finish().into_iter().for_each(|change| self.apply(change)),
            Err(refused) => self.print(&format!("refused: {refused}")),
        }
    }

    fn parsed<'a>(&self, text: &'a str) -> ScriptedRequest<'a> {
        let mut request = ScriptedRequest::default();
        for part in text.split(',') {
            let mut words: Vec<&str> = part.split_whitespace().collect();
            while let Some(clause) = words.iter().rposition(|word| ["with", "id", "large"].contains(word)) {
                match words.split_off(clause)[..] {
                    ["with", name] => request.context = Some(self.contexts[name].clone()),
                    ["id", id] => request.id = Some(Bytes::copy_from_slice(id.as_bytes())),
                    ["large"] => request.is_large = true,
                    ref other => panic!("unknown clause: {other:?}"),
                }
            }
            request.edits.push(words);
        }
        request
    }

    /// The fields of the outermost map that the request removes, where it says that they are large.
    fn removed_parts(&self, request: &ScriptedRequest<'_>) -> Vec<DatatypePath> {
        let removed = request.edits.iter().filter(|_| request.is_large && self.datatype == Datatype::Map);
        let removed = removed.filter_map(|words| if let ["remove", field] = words[..] { Some(field) } else { None });
        removed.map(|name| DatatypePath::root().child(&field(name))).collect()
    }

    /// The rules of the engines: the newer stamp wins, and a removal takes a row that is not newer.
    fn apply(&mut self, change: Change) {
        match change {
            Change::Put(row) => {
                assert!(
                    self.rows.get(&row.name).is_none_or(|known| known.stamp < row.stamp),
                    "not the newest: {row:?}"
                );
                self.rows.insert(row.name.clone(), row);
            }
            Change::Remove { name, stamp } => {
                if self.rows.get(&name).is_some_and(|row| row.stamp <= stamp) {
                    self.rows.remove(&name);
                }
            }
            Change::Clear { .. } => panic!("no data type clears its partition"),
        }
    }

    fn head(&self) -> DatatypeHead {
        let mut head = DatatypeHead::default();
        let rows = self.rows.values().filter(|row| row.name < DatatypeRowName::DATA);
        rows.for_each(|row| head.add(row).unwrap());
        head
    }

    fn value(&self) -> (DatatypeValue, DatatypeContext) {
        let mut decoder = ValueDecoder::new(self.datatype, self.head());
        let mut pieces = Vec::new();
        for row in self.rows.values().filter(|row| row.name >= DatatypeRowName::DATA) {
            decoder.add(row.clone(), &mut pieces).unwrap();
        }
        decoder.finish(&mut pieces);
        let mut builder = ValueBuilder::new(self.datatype, usize::MAX);
        pieces.into_iter().for_each(|piece| builder.add(piece).unwrap());
        (builder.finish(), decoder.context().clone())
    }

    fn read(&mut self) -> DatatypeContext {
        let (value, context) = self.value();
        match self.head().exists() {
            true => self.print(&shown(&value)),
            false => self.print("nothing"),
        }
        context
    }

    fn print_rows(&mut self) {
        let rows: Vec<Row> = self.rows.values().cloned().collect();
        for Row { name, value, stamp, expires } in rows {
            let star = if expires.is_some() { "*" } else { "" };
            let line = format!("{} @{}{star} {}", name.escape_ascii(), stamp.0, value.escape_ascii());
            self.print(line.trim_end());
        }
    }

    fn print(&mut self, line: &str) {
        self.printed += &format!("{line}\n");
    }
}

fn address() -> Address {
    Address::new(BucketAddress::new("t".into(), "b".into()).unwrap(), "k".into()).unwrap()
}

/// The context as it comes back from a client.
fn via_client(context: &DatatypeContext) -> DatatypeContext {
    DatatypeContext::decode(&context.encode(&address(), Timestamp::MAX), &address(), Timestamp(1_000_000)).unwrap()
}

fn bytes(word: &str) -> Bytes {
    Bytes::copy_from_slice(word.as_bytes())
}

fn field(word: &str) -> FieldName {
    let (name, suffix) = word.rsplit_once('_').expect("a field has a type");
    let embedded = EmbeddedType::ALL.into_iter().find(|one| one.name() == suffix).unwrap();
    FieldName::new(bytes(name), embedded)
}

fn update(datatype: Datatype, edits: &[Vec<&str>]) -> DatatypeUpdate {
    let adds = || edits.iter().flat_map(|words| words[1..].iter().map(|word| bytes(word))).collect();
    match datatype {
        Datatype::Counter => DatatypeUpdate::Counter(edits[0][1].parse().unwrap()),
        Datatype::Set => DatatypeUpdate::Set(edits.iter().flat_map(|words| set_edits(words)).collect()),
        Datatype::Gset => DatatypeUpdate::Gset(adds()),
        Datatype::Hll => DatatypeUpdate::Hll(adds()),
        Datatype::Map => {
            let mut map = MapEdits::default();
            edits.iter().for_each(|words| add_edit(&mut map, words));
            DatatypeUpdate::Map(map)
        }
    }
}

fn set_edits(words: &[&str]) -> Vec<SetEdit> {
    let edit = match words[0] {
        "add" => SetEdit::Add,
        "remove" => SetEdit::Remove,
        other => panic!("not of a set: {other}"),
    };
    words[1..].iter().map(|word| edit(bytes(word))).collect()
}

/// Adds an edit to a map, or to the map in it that the path names.
fn add_edit(map: &mut MapEdits, words: &[&str]) {
    let (at, removes) = if words[0] == "remove" { (words[1], true) } else { (words[0], false) };
    if let Some((outer, inner)) = at.split_once('/') {
        let mut within = MapEdits::default();
        let rest = if removes { vec!["remove", inner] } else { [&[inner], &words[1..]].concat() };
        add_edit(&mut within, &rest);
        map.updates.push(FieldEdit { name: field(outer).name, update: EmbeddedUpdate::Map(within) });
        return;
    }
    let FieldName { name, embedded } = field(at);
    if removes {
        return map.removes.push(FieldName { name, embedded });
    }
    let update = match embedded {
        EmbeddedType::Counter => EmbeddedUpdate::Counter(words[2].parse().unwrap()),
        EmbeddedType::Set => EmbeddedUpdate::Set(if words.len() > 1 { set_edits(&words[1..]) } else { Vec::new() }),
        EmbeddedType::Register => EmbeddedUpdate::Register(bytes(words[2])),
        EmbeddedType::Flag => EmbeddedUpdate::Flag(words[1] == "enable"),
        EmbeddedType::Map => EmbeddedUpdate::Map(MapEdits::default()),
    };
    map.updates.push(FieldEdit { name, update });
}

fn shown(value: &DatatypeValue) -> String {
    match value {
        DatatypeValue::Counter(total) => total.to_string(),
        DatatypeValue::Hll(estimate) => format!("about {estimate}"),
        DatatypeValue::Set(elements) | DatatypeValue::Gset(elements) => shown_set(elements),
        DatatypeValue::Map(fields) => shown_map(fields),
    }
}

fn shown_set(elements: &[Bytes]) -> String {
    let elements: Vec<String> = elements.iter().map(|one| one.escape_ascii().to_string()).collect();
    format!("[{}]", elements.join(" "))
}

fn shown_map(fields: &[FieldValue]) -> String {
    let one = |FieldValue { field, value }: &FieldValue| {
        let value = match value {
            EmbeddedValue::Counter(total) => total.to_string(),
            EmbeddedValue::Set(elements) => shown_set(elements),
            EmbeddedValue::Register(Some(bytes)) => bytes.escape_ascii().to_string(),
            EmbeddedValue::Register(None) => "unset".into(),
            EmbeddedValue::Flag(enabled) => enabled.to_string(),
            EmbeddedValue::Map(fields) => shown_map(fields),
        };
        format!("{}_{}: {value}", field.name.escape_ascii(), field.embedded.name())
    };
    format!("{{{}}}", fields.iter().map(one).collect::<Vec<_>>().join(", "))
}
