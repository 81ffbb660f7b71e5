//! Properties of buckets and types as messages. A change becomes the JSON that HTTP takes, so that both refuse the same with
//! the same reasons.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use larder_core::rules::erlang;
use larder_core::rules::props::Quorum;
use larder_core::rules::props::display::PropList;
use larder_core::rules::props::value::{Hook, LinkFun, ModFun, Repl, Value};
use larder_core::{AuditEvent, AuditOutcome, Error};
use larder_kv::Gateway;
use larder_rows::address::BucketAddress;
use serde_json::{Map, Value as Json, json};

use super::fault::{PbFault, decode};
use super::fields::type_name;
use super::frame::{put_head, put_message};
use super::messages::{
    RpbBucketProps, RpbBucketReq, RpbCommitHook, RpbGetBucketResp, RpbGetBucketTypeReq, RpbModFun, RpbSetBucketReq,
    RpbSetBucketTypeReq,
};
use super::operations::PbOperation;
use super::session::PbSession;

const GET_RESP: u8 = 20;
const SET_RESP: u8 = 22;
const RESET_RESP: u8 = 30;

/// Code 19. A bucket without a name has the properties of its type, as in Riak.
///
/// # Errors
/// The type is unknown, or another error of the gateway.
pub(super) async fn get_bucket(
    gateway: &Arc<Gateway>,
    request: RpbBucketReq,
    output: &mut BytesMut,
) -> Result<(), PbFault> {
    let bucket = request.bucket.filter(|bucket| !bucket.is_empty());
    let list = match bucket {
        None => gateway.types().props(&type_name(request.r#type)).await,
        Some(bucket) => {
            let bucket = BucketAddress::new(type_name(request.r#type), bucket)?;
            gateway.types().bucket_props(&bucket).await
        }
    };
    put_props(output, &list.map_err(PbFault::from_bucket)?);
    Ok(())
}

/// Code 21.
///
/// # Errors
/// Properties are invalid, the type is unknown, or another error of the gateway.
pub(super) async fn set_bucket(
    gateway: &Arc<Gateway>,
    request: RpbSetBucketReq,
    output: &mut BytesMut,
) -> Result<(), PbFault> {
    let bucket = BucketAddress::new(type_name(request.r#type), request.bucket.unwrap_or_default())?;
    let props = props_json(request.props.unwrap_or_default());
    gateway.types().set_bucket_props(&bucket, &props).await.map_err(PbFault::from_bucket)?;
    put_head(output, SET_RESP, 0);
    Ok(())
}

/// Code 29. It succeeds for an unknown type too, as in Riak.
///
/// # Errors
/// An error of the gateway.
pub(super) async fn reset_bucket(
    gateway: &Arc<Gateway>,
    request: RpbBucketReq,
    output: &mut BytesMut,
) -> Result<(), PbFault> {
    let bucket = BucketAddress::new(type_name(request.r#type), request.bucket.unwrap_or_default())?;
    match gateway.types().reset_bucket_props(&bucket).await {
        Ok(()) | Err(Error::UnknownType(_)) => {
            put_head(output, RESET_RESP, 0);
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Code 31.
///
/// # Errors
/// The type is unknown or not active, or another error of the gateway.
pub(super) async fn get_type(
    gateway: &Arc<Gateway>,
    request: RpbGetBucketTypeReq,
    output: &mut BytesMut,
) -> Result<(), PbFault> {
    let name = request.r#type.unwrap_or_default();
    match gateway.types().props(&name).await {
        Ok(list) => put_props(output, &list),
        Err(Error::UnknownType(name)) => {
            return Err(PbFault::Text(format!("Invalid bucket type: {}", erlang::binary(&name))));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Code 32.
///
/// # Errors
/// Properties are invalid, the type is unknown, not active or `default`, or another error of the gateway.
pub(super) async fn set_type(
    gateway: &Arc<Gateway>,
    request: RpbSetBucketTypeReq,
    output: &mut BytesMut,
) -> Result<(), PbFault> {
    let props = props_json(request.props.unwrap_or_default());
    gateway.types().update(&request.r#type.unwrap_or_default(), &props).await?;
    put_head(output, SET_RESP, 0);
    Ok(())
}

fn put_props(output: &mut BytesMut, list: &PropList) {
    put_message(output, GET_RESP, &RpbGetBucketResp { props: Some(props_message(list)) });
}

/// The members that a message sets, as HTTP writes them. The last field stands first: the gateway names invalid properties in
/// reverse, and Riak names those of a message in the order of its fields.
pub(super) fn props_json(props: RpbBucketProps) -> Map<String, Json> {
    let text = |bytes: Bytes| Json::from(String::from_utf8_lossy(&bytes));
    let function = |fun: RpbModFun| json!({ "mod": fun.module.map(text), "fun": fun.function.map(text) });
    let hook = |hook: RpbCommitHook| match hook.modfun {
        Some(fun) => function(fun),
        None => json!({ "name": hook.name.map(text) }),
    };
    let hooks = |list: Vec<RpbCommitHook>, counts: Option<bool>| {
        (counts == Some(true)).then(|| list.into_iter().map(hook).collect::<Vec<_>>().into())
    };
    let number = |number: Option<u32>| number.map(Json::from);
    let flag = |flag: Option<bool>| flag.map(Json::from);
    let members: [(&str, Option<Json>); 27] = [
        ("hll_precision", number(props.hll_precision)),
        ("write_once", flag(props.write_once)),
        ("consistent", flag(props.consistent)),
        ("datatype", props.datatype.map(text)),
        ("search_index", props.search_index.map(text)),
        ("repl", props.repl.map(repl_json)),
        ("search", flag(props.search)),
        ("backend", props.backend.map(text)),
        ("notfound_ok", flag(props.notfound_ok)),
        ("basic_quorum", flag(props.basic_quorum)),
        ("rw", props.rw.map(quorum_json)),
        ("dw", props.dw.map(quorum_json)),
        ("pw", props.pw.map(quorum_json)),
        ("w", props.w.map(quorum_json)),
        ("r", props.r.map(quorum_json)),
        ("pr", props.pr.map(quorum_json)),
        ("small_vclock", number(props.small_vclock)),
        ("big_vclock", number(props.big_vclock)),
        ("young_vclock", number(props.young_vclock)),
        ("old_vclock", number(props.old_vclock)),
        ("linkfun", props.linkfun.map(function)),
        ("chash_keyfun", props.chash_keyfun.map(function)),
        ("postcommit", hooks(props.postcommit, props.has_postcommit)),
        ("precommit", hooks(props.precommit, props.has_precommit)),
        ("last_write_wins", flag(props.last_write_wins)),
        ("allow_mult", flag(props.allow_mult)),
        ("n_val", number(props.n_val)),
    ];
    members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// A replica count as HTTP writes it; the word `default` is refused there.
fn quorum_json(count: u32) -> Json {
    match count {
        4_294_967_294 => "one".into(),
        4_294_967_293 => "quorum".into(),
        4_294_967_292 => "all".into(),
        4_294_967_291 => "default".into(),
        count => count.into(),
    }
}

fn repl_json(repl: u32) -> Json {
    match repl {
        0 => false.into(),
        1 => "realtime".into(),
        2 => "fullsync".into(),
        3 => true.into(),
        other => other.into(),
    }
}

/// The list as a message: properties that it has no field for are left out.
fn props_message(list: &PropList) -> RpbBucketProps {
    // Both flags are always set on read: an empty list shows as no hooks.
    let mut props =
        RpbBucketProps { has_precommit: Some(true), has_postcommit: Some(true), ..RpbBucketProps::default() };
    for (name, value) in list {
        set_field(&mut props, name, value);
    }
    props
}

fn set_field(props: &mut RpbBucketProps, name: &str, value: &Value) {
    match value {
        Value::Bool(flag) => {
            if let Some(field) = flag_field(props, name) {
                *field = Some(*flag);
            }
        }
        Value::Int(number) => {
            if let Some(field) = number_field(props, name) {
                *field = u32::try_from(*number).ok();
            }
        }
        Value::Quorum(quorum) => {
            if let Some(field) = number_field(props, name) {
                *field = Some(quorum_number(*quorum));
            }
        }
        Value::Text(text) if name == "backend" => props.backend = Some(text.clone().into()),
        Value::Text(text) if name == "search_index" => props.search_index = Some(text.clone().into()),
        Value::Repl(repl) => props.repl = Some(repl_number(*repl)),
        Value::Datatype(datatype) => props.datatype = Some(Bytes::from_static(datatype.name().as_bytes())),
        Value::Hooks(hooks) if name == "precommit" => props.precommit = hooks.iter().map(hook_message).collect(),
        Value::Hooks(hooks) => props.postcommit = hooks.iter().map(hook_message).collect(),
        Value::KeyFun(fun) => props.chash_keyfun = Some(function_message(fun)),
        Value::LinkFun(LinkFun::ModFun(fun)) => props.linkfun = Some(function_message(fun)),
        Value::LinkFun(_) | Value::Text(_) | Value::Node(_) | Value::Sync(_) => {}
    }
}

fn flag_field<'a>(props: &'a mut RpbBucketProps, name: &str) -> Option<&'a mut Option<bool>> {
    Some(match name {
        "allow_mult" => &mut props.allow_mult,
        "last_write_wins" => &mut props.last_write_wins,
        "basic_quorum" => &mut props.basic_quorum,
        "notfound_ok" => &mut props.notfound_ok,
        "search" => &mut props.search,
        "consistent" => &mut props.consistent,
        "write_once" => &mut props.write_once,
        _ => return None,
    })
}

fn number_field<'a>(props: &'a mut RpbBucketProps, name: &str) -> Option<&'a mut Option<u32>> {
    Some(match name {
        "n_val" => &mut props.n_val,
        "old_vclock" => &mut props.old_vclock,
        "young_vclock" => &mut props.young_vclock,
        "big_vclock" => &mut props.big_vclock,
        "small_vclock" => &mut props.small_vclock,
        "pr" => &mut props.pr,
        "r" => &mut props.r,
        "w" => &mut props.w,
        "pw" => &mut props.pw,
        "dw" => &mut props.dw,
        "rw" => &mut props.rw,
        "hll_precision" => &mut props.hll_precision,
        _ => return None,
    })
}

fn quorum_number(quorum: Quorum) -> u32 {
    match quorum {
        Quorum::One => 4_294_967_294,
        Quorum::Quorum => 4_294_967_293,
        Quorum::All => 4_294_967_292,
        Quorum::Count(count) => count,
    }
}

fn repl_number(repl: Repl) -> u32 {
    match repl {
        Repl::False => 0,
        Repl::Realtime => 1,
        Repl::Fullsync => 2,
        Repl::True => 3,
    }
}

fn hook_message(hook: &Hook) -> RpbCommitHook {
    match hook {
        // The message has no field for the argument: HTTP shows it.
        Hook::ModFun(function) | Hook::WithArgument { function, .. } => {
            RpbCommitHook { modfun: Some(function_message(function)), name: None }
        }
        Hook::Named(name) | Hook::Text(name) => RpbCommitHook { modfun: None, name: Some(name.clone().into()) },
    }
}

fn function_message(fun: &ModFun) -> RpbModFun {
    RpbModFun { module: Some(fun.module.clone().into()), function: Some(fun.function.clone().into()) }
}

/// Carries out `SetBucket`, `ResetBucket` or `SetBucketType`, and reports it.
///
/// # Errors
/// The request was not carried out.
pub(super) async fn change(
    gateway: &Arc<Gateway>,
    session: &PbSession,
    operation: PbOperation,
    message: Bytes,
    output: &mut BytesMut,
) -> Result<(), PbFault> {
    let (target, done) = match operation {
        PbOperation::SetBucket => {
            let request: RpbSetBucketReq = decode(message)?;
            let target = bucket_path(request.r#type.clone(), request.bucket.as_ref());
            (target, set_bucket(gateway, request, output).await)
        }
        PbOperation::ResetBucket => {
            let request: RpbBucketReq = decode(message)?;
            let target = bucket_path(request.r#type.clone(), request.bucket.as_ref());
            (target, reset_bucket(gateway, request, output).await)
        }
        _ => {
            let request: RpbSetBucketTypeReq = decode(message)?;
            let target = format!("/types/{}", String::from_utf8_lossy(&type_name(request.r#type.clone())));
            (target, set_type(gateway, request, output).await)
        }
    };
    if let Some(log) = gateway.context().audit() {
        log.record(&AuditEvent {
            face: "pb",
            who: session.user.as_ref().map(|login| &*login.user),
            from: Some(session.source.address),
            action: &format!("{operation:?}"),
            target: &target,
            outcome: if done.is_ok() { AuditOutcome::Done } else { AuditOutcome::Failed },
            status: None,
            request: None,
        });
    }
    done
}

fn bucket_path(bucket_type: Option<Bytes>, bucket: Option<&Bytes>) -> String {
    let (bucket_type, bucket) = (type_name(bucket_type), bucket.map(|bucket| &bucket[..]).unwrap_or_default());
    format!("/types/{}/buckets/{}", String::from_utf8_lossy(&bucket_type), String::from_utf8_lossy(bucket))
}

#[cfg(test)]
mod tests {
    use larder_core::rules::props::table::{PROPS, PropKind};
    use prost::Message as _;

    use super::*;

    fn sample(kind: PropKind) -> Json {
        match kind {
            PropKind::Flag => json!(true),
            PropKind::Positive | PropKind::NonNegative | PropKind::Precision => json!(10),
            PropKind::Quorum | PropKind::QuorumOrZero => json!("all"),
            PropKind::Text | PropKind::Node => json!("text"),
            PropKind::Sync => json!("all"),
            PropKind::Repl => json!("realtime"),
            PropKind::Datatype => json!("set"),
            PropKind::Hooks => json!([{ "name": "Hooks.check" }]),
            PropKind::KeyFun | PropKind::LinkFun => json!({ "mod": "m", "fun": "f" }),
        }
    }

    /// The numbers of the fields of a message, without the flags that every answer has.
    fn fields(props: &RpbBucketProps) -> Vec<u32> {
        let shown = RpbBucketProps { has_precommit: None, has_postcommit: None, ..props.clone() };
        (1..30).filter(|field| has_field(&shown, *field)).collect()
    }

    fn has_field(props: &RpbBucketProps, field: u32) -> bool {
        let bytes = props.encode_to_vec();
        let mut rest = &bytes[..];
        let mut is_there = false;
        while let Ok((number, wire_type)) = prost::encoding::decode_key(&mut rest) {
            is_there |= number == field;
            prost::encoding::skip_field(wire_type, number, &mut rest, prost::encoding::DecodeContext::default())
                .unwrap();
        }
        is_there
    }

    #[test]
    fn every_property_with_a_field_goes_out_and_comes_back_in_it() {
        for prop in PROPS {
            let json = sample(prop.kind);
            let message = props_message(&vec![(prop.name, prop.kind.decode(&json).unwrap())]);
            assert_eq!(fields(&message), prop.pb.into_iter().collect::<Vec<_>>(), "{}", prop.name);
            if prop.pb.is_some() {
                assert_eq!(props_json(message).get(prop.name), Some(&json), "{}", prop.name);
            }
        }
    }
}
