//! A client that puts, overwrites, deletes and queries the objects of one bucket, and compares the answers of indexes with a
//! scan of all objects. Any engine can run it: the tests of the server share this file.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_core::Error;
use larder_core::body::PutBody;
use larder_kv::rules::causality::Conditions;
use larder_kv::rules::index::{
    IndexCondition, IndexPosition, IndexQuery, IndexScope, TermRegex, for_any_combination, for_every_combination,
};
use larder_kv::{FetchedObject, Gateway, KvDelete, KvGet, KvPut, Quorums};
use larder_rows::address::{Address, BucketAddress};
use larder_rows::content::{KvContent, Term};
use larder_testkit::SplitMix64;

const KEYS: [&str; 3] = ["k", "k\0", "key"];
const INTEGERS: [&str; 7] = ["-12", "-3", "0", "7", "10", "123", "99999999999999999999"];
const TEXTS: [&str; 5] = ["", "a", "a\0", "ab", "b"];
const LARGE: usize = 3000;

/// The types whose buckets are walked, with their properties; `default` is there.
pub(crate) const TYPES: [(&str, &str); 4] = [
    ("sib", "{}"),
    ("lww", r#"{"last_write_wins":true,"dvv_enabled":false,"allow_mult":false}"#),
    ("once", r#"{"write_once":true}"#),
    ("strong", r#"{"consistent":true}"#),
];

/// A term with the key of its object.
type Posting = (Bytes, Bytes);

/// A client of one bucket.
pub(crate) struct IndexWalk {
    pub(crate) dice: SplitMix64,
    bucket: BucketAddress,
    /// The contexts that the client holds, perhaps old ones.
    contexts: BTreeMap<&'static str, Bytes>,
    puts: usize,
}

impl IndexWalk {
    /// A client of the bucket `name`; the seed chooses its type.
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        let mut dice = SplitMix64::new(seed);
        let kind = ["sib", "sib", "default", "default", "lww", "once", "strong"][dice.below(7)];
        let bucket = BucketAddress::new(kind.into(), Bytes::copy_from_slice(name.as_bytes())).unwrap();
        Self { dice, bucket, contexts: BTreeMap::new(), puts: 0 }
    }

    /// One operation, or two at once. Its error is an answer like any other.
    pub(crate) async fn step(&mut self, gateway: &Gateway) {
        let key = KEYS[self.dice.below(KEYS.len())];
        match self.dice.below(8) {
            0 => {
                if let Ok(Some(context)) = self.read(gateway, key).await.map(|found| found.context) {
                    self.contexts.insert(key, context);
                }
            }
            1 => {
                let request = KvDelete {
                    address: self.address(key),
                    context: self.context(key),
                    conditions: Conditions::default(),
                    quorums: Quorums::default(),
                    timeout: None,
                };
                let _ = gateway.kv.delete(request).await;
            }
            2 => {
                let (first, second) = (self.request(key), self.request(key));
                let _ = tokio::join!(gateway.kv.put(first), gateway.kv.put(second));
            }
            _ => {
                let request = KvPut { return_body: self.dice.below(4) == 0, ..self.request(key) };
                if let Ok(Some(found)) = gateway.kv.put(request).await {
                    self.contexts.extend(found.context.map(|context| (key, context)));
                }
            }
        }
    }

    fn request(&mut self, key: &'static str) -> KvPut {
        self.puts += 1;
        let mut body = format!("{}", self.puts);
        if self.dice.below(8) == 0 {
            body.push_str(&" ".repeat(LARGE));
        }
        KvPut {
            address: self.address(key),
            context: self.context(key),
            conditions: Conditions::default(),
            if_not_modified: None,
            content: KvContent { terms: self.terms(), ..KvContent::default() },
            upload: PutBody::Bytes(body.into()),
            quorums: Quorums::default(),
            return_body: false,
            timeout: None,
        }
    }

    fn terms(&mut self) -> Vec<Term> {
        let term = |dice: &mut SplitMix64| match dice.below(2) {
            0 => Term { field: "n_int".into(), value: INTEGERS[dice.below(INTEGERS.len())].into() },
            _ => Term { field: "t_bin".into(), value: TEXTS[dice.below(TEXTS.len())].into() },
        };
        (0..self.dice.below(4)).map(|_| term(&mut self.dice)).collect()
    }

    /// Two of three writes send the context that the client holds.
    fn context(&mut self, key: &str) -> Option<Bytes> {
        self.contexts.get(key).filter(|_| self.dice.below(3) > 0).cloned()
    }

    fn address(&self, key: &'static str) -> Address {
        Address::new(self.bucket.clone(), key.into()).unwrap()
    }

    async fn read(&self, gateway: &Gateway, key: &'static str) -> Result<FetchedObject, Error> {
        let request = KvGet { address: self.address(key), quorums: Quorums::default(), bodies: false, timeout: None };
        gateway.kv.get(request).await
    }

    /// Compares every kind of query with a scan of all objects.
    pub(crate) async fn check(&mut self, gateway: &Gateway) -> Result<(), String> {
        let (mut postings, mut keys) = (BTreeMap::<&str, BTreeSet<Posting>>::new(), BTreeSet::new());
        for key in KEYS {
            let found = self.read(gateway, key).await.map_err(|error| error.to_string())?;
            for sibling in &found.versions.siblings {
                keys.insert(Bytes::from(key));
                for Term { field, value } in &sibling.content.terms {
                    let field = if field == "n_int" { "n_int" } else { "t_bin" };
                    postings.entry(field).or_default().insert((value.clone(), key.into()));
                }
            }
        }
        self.check_combined(gateway, &postings).await?;
        for (field, terms) in [("n_int", &INTEGERS[..]), ("t_bin", &TEXTS[..])] {
            let expected = postings.remove(field).unwrap_or_default();
            self.check_field(gateway, field, terms, &expected).await?;
        }
        let listed: Vec<Posting> = keys.iter().map(|key| (Bytes::new(), key.clone())).collect();
        for (field, from, to) in [("$bucket", "x", "x"), ("$key", "k", "kez")] {
            self.expect(gateway, self.query(field, from, to), &listed).await?;
        }
        Ok(())
    }

    /// Compares queries of two conditions with the terms of all objects.
    async fn check_combined(
        &mut self,
        gateway: &Gateway,
        postings: &BTreeMap<&str, BTreeSet<Posting>>,
    ) -> Result<(), String> {
        let (number, text) = (INTEGERS[self.dice.below(INTEGERS.len())], TEXTS[self.dice.below(TEXTS.len())]);
        let keys_with = |field: &str, is_held: &dyn Fn(&Bytes) -> bool| -> BTreeSet<Bytes> {
            let held = postings.get(field).into_iter().flatten().filter(|(term, _)| is_held(term));
            held.map(|(_, key)| key.clone()).collect()
        };
        let numbers = keys_with("n_int", &|term| term == number);
        let texts = keys_with("t_bin", &|term| term.starts_with(text.as_bytes()));
        let of_number = IndexScope::range(&"n_int".into(), &number.into(), &number.into()).unwrap();
        let of_text = IndexScope::prefix(&"t_bin".into(), &text.into()).unwrap().unwrap();
        let conditions = || {
            [(of_text.clone(), false), (of_number.clone(), true)]
                .map(|(scope, is_equality)| IndexCondition { scope, is_equality })
                .to_vec()
        };
        let all = for_every_combination(&self.bucket, conditions());
        let any = for_any_combination(&self.bucket, conditions());
        for (queries, expected) in [(all, &numbers & &texts), (any, &numbers | &texts)] {
            let mut found = BTreeSet::new();
            for query in queries {
                let hits = hits(gateway, &query, None, usize::MAX).await?;
                let keys: BTreeSet<Bytes> = hits.into_iter().map(|(_, (_, key))| key).collect();
                if let Some(again) = keys.intersection(&found).next() {
                    return Err(format!("{:?} {again:?} twice, with {number} or {text}", self.bucket));
                }
                found.extend(keys);
            }
            if found != expected {
                return Err(format!("{:?} {number} {text:?}: {found:?} instead of {expected:?}", self.bucket));
            }
        }
        Ok(())
    }

    async fn check_field(
        &mut self,
        gateway: &Gateway,
        field: &'static str,
        terms: &[&'static str],
        expected: &BTreeSet<Posting>,
    ) -> Result<(), String> {
        let rank = |term: &Bytes| terms.iter().position(|one| one.as_bytes() == term).unwrap();
        let mut sorted: Vec<Posting> = expected.iter().cloned().collect();
        sorted.sort_by_key(|(term, key)| (rank(term), key.clone()));
        let (a, b) = (self.dice.below(terms.len()), self.dice.below(terms.len()));
        let within = |from: usize, to: usize| {
            let is_held = |posting: &&Posting| (from..=to).contains(&rank(&posting.0));
            sorted.iter().filter(is_held).cloned().collect::<Vec<_>>()
        };
        self.expect(gateway, self.query(field, terms[0], terms[terms.len() - 1]), &sorted).await?;
        self.expect(gateway, self.query(field, terms[a], terms[b]), &within(a, b)).await?;
        let equality = IndexQuery::equality(self.bucket.clone(), &field.into(), &terms[a].into()).unwrap();
        self.expect(gateway, equality, &within(a, a)).await?;
        if field == "t_bin" {
            let mut query = self.query(field, terms[0], terms[terms.len() - 1]);
            query.regex = Some(TermRegex::new(b"^a").unwrap());
            let matching = |posting: &&Posting| posting.0.starts_with(b"a");
            self.expect(gateway, query, &sorted.iter().filter(matching).cloned().collect::<Vec<_>>()).await?;
        }
        Ok(())
    }

    fn query(&self, field: &'static str, from: &'static str, to: &'static str) -> IndexQuery {
        IndexQuery::range(self.bucket.clone(), &field.into(), &from.into(), &to.into()).unwrap()
    }

    /// Runs a query whole, and sometimes by pages of one or two hits.
    async fn expect(&mut self, gateway: &Gateway, query: IndexQuery, expected: &[Posting]) -> Result<(), String> {
        let whole = hits(gateway, &query, None, usize::MAX).await?;
        let whole: Vec<Posting> = whole.into_iter().map(|(_, posting)| posting).collect();
        let paged = match self.dice.below(3) {
            0 => by_pages(gateway, &query, 1 + self.dice.below(2)).await?,
            _ => whole.clone(),
        };
        match whole == expected && paged == expected {
            true => Ok(()),
            false => Err(format!(
                "{:?} {:?}: {whole:?}, by pages {paged:?}, instead of {expected:?}",
                self.bucket, query.scope
            )),
        }
    }
}

/// The hits of a query by pages of `size`, each of which begins at a continuation.
async fn by_pages(gateway: &Gateway, query: &IndexQuery, size: usize) -> Result<Vec<Posting>, String> {
    let (mut paged, mut after) = (Vec::new(), None);
    loop {
        let page = hits(gateway, query, after, size).await?;
        paged.extend(page.iter().map(|(_, posting)| posting.clone()));
        let Some((last, _)) = page.last().filter(|_| page.len() == size) else { return Ok(paged) };
        after = Some(IndexPosition::decode(last.encode(query).as_bytes(), query).unwrap());
    }
}

/// At most `limit` hits of a query.
pub(crate) async fn hits(
    gateway: &Gateway,
    query: &IndexQuery,
    after: Option<IndexPosition>,
    limit: usize,
) -> Result<Vec<(IndexPosition, Posting)>, String> {
    let mut reader = gateway.kv.query_index(query.clone(), after, None);
    let mut hits = Vec::new();
    loop {
        let page = reader.next((limit - hits.len()).min(1000)).await.map_err(|error| error.to_string())?;
        for hit in page.hits {
            let term = query.show_term(&hit).map_err(|error| error.to_string())?;
            hits.push((IndexPosition::from_hit(&hit), (term, hit.key)));
        }
        if page.is_last || hits.len() >= limit {
            return Ok(hits);
        }
    }
}
