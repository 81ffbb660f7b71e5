//! The results of a phase as an Erlang term.

use serde_json::Value;

use super::value::{JobInput, JobValue};
use larder_core::rules::external_term::TermWriter;

/// The results of a phase as a list. Texts are binaries, objects `{struct,[{NAME,VALUE}]}`; the keys of a job without phases are
/// `{B,K}` or `{{{T,B},K},DATUM}`, as its inputs.
#[must_use]
pub fn term_of_results(values: &[JobValue], is_bare: bool) -> Vec<u8> {
    let mut out = TermWriter::default();
    out.list(values.len(), |out| values.iter().for_each(|value| write_value(out, value, is_bare)));
    out.finish()
}

fn write_value(out: &mut TermWriter, value: &JobValue, is_bare: bool) {
    match value {
        JobValue::Json(value) => write_json(out, value),
        JobValue::Binary(bytes) => out.binary(bytes),
        // Without its key, as map functions in Erlang return it.
        JobValue::NotFound(_) => {
            out.tuple(2);
            out.atom("error");
            out.atom("notfound");
        }
        JobValue::Key(input) if input.key_data.is_some() || is_bare && !input.address.bucket.is_default_type() => {
            out.tuple(2);
            write_key(out, input);
            write_datum(out, input);
        }
        JobValue::Key(input) if is_bare => write_key(out, input),
        // `reduce_identity` makes lists.
        JobValue::Key(input) => out.list(2, |out| {
            write_bucket(out, input);
            out.binary(&input.address.key);
        }),
    }
}

/// `{B,K}` or `{{T,B},K}`.
fn write_key(out: &mut TermWriter, input: &JobInput) {
    out.tuple(2);
    write_bucket(out, input);
    out.binary(&input.address.key);
}

fn write_bucket(out: &mut TermWriter, input: &JobInput) {
    let bucket = &input.address.bucket;
    if !bucket.is_default_type() {
        out.tuple(2);
        out.binary(&bucket.bucket_type);
    }
    out.binary(&bucket.bucket);
}

fn write_datum(out: &mut TermWriter, input: &JobInput) {
    match &input.key_data {
        Some(data) => write_json(out, data),
        None => out.atom("undefined"),
    }
}

fn write_json(out: &mut TermWriter, value: &Value) {
    match value {
        Value::Null => out.atom("null"),
        Value::Bool(true) => out.atom("true"),
        Value::Bool(false) => out.atom("false"),
        Value::String(text) => out.binary(text.as_bytes()),
        Value::Number(number) => match (number.as_i128(), number.as_f64().filter(|number| number.is_finite())) {
            (Some(integer), _) => out.integer(integer),
            (None, Some(float)) => out.float(float),
            (None, None) => out.binary(number.to_string().as_bytes()),
        },
        Value::Array(list) => out.list(list.len(), |out| list.iter().for_each(|element| write_json(out, element))),
        Value::Object(members) => {
            out.tuple(2);
            out.atom("struct");
            out.list(members.len(), |out| {
                for (name, value) in members {
                    out.tuple(2);
                    out.binary(name.as_bytes());
                    write_json(out, value);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_core::rules::external_term::ExternalTerm;
    use larder_rows::address::{Address, BucketAddress};
    use serde_json::json;

    fn key(of_type: &'static str, key_data: Option<Value>) -> JobInput {
        let bucket = BucketAddress::new(of_type.into(), "b".into()).unwrap();
        JobInput { address: Address::new(bucket, "k".into()).unwrap(), key_data }
    }

    #[test]
    fn results_are_the_terms_that_riak_sends() {
        use JobValue as V;
        let shown = |value: JobValue, is_bare| {
            let document = term_of_results(&[value], is_bare);
            ExternalTerm::decode(&document[..], crate::rules::term_job::BOUNDS).unwrap().shown()
        };
        for (value, is_bare, printed) in [
            (V::Json(json!([1, -300, 1.5, "a", true, null])), false, r#"[[1,-300,1.5,<<"a">>,true,null]]"#),
            (V::Json(json!({"a": {"b": []}})), false, r#"[{struct,[{<<"a">>,{struct,[{<<"b">>,[]}]}}]}]"#),
            (V::Json(json!(1u128 << 70)), false, "[1180591620717411303424]"),
            (V::Binary(vec![255, 0].into()), false, "[<<255,0>>]"),
            (V::Key(key("default", None)), true, r#"[{<<"b">>,<<"k">>}]"#),
            (V::Key(key("default", None)), false, r#"[[<<"b">>,<<"k">>]]"#),
            (V::Key(key("default", Some(json!("d")))), false, r#"[{{<<"b">>,<<"k">>},<<"d">>}]"#),
            (V::Key(key("t", None)), true, r#"[{{{<<"t">>,<<"b">>},<<"k">>},undefined}]"#),
            (V::NotFound(key("default", None)), false, "[{error,notfound}]"),
        ] {
            assert_eq!(shown(value, is_bare), printed);
        }
        assert_eq!(term_of_results(&[], false), [131, 106]);
    }
}
