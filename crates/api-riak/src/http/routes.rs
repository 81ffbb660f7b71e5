//! The table of routes, for dispatch, for 405 with `Allow`, and for the list of resources at `/`.

use hyper::Method;
use larder_core::Feature;
use larder_core::rules::security::KvPermission;

use super::path::Segments;

/// One segment of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathPart {
    /// A fixed word.
    Word(&'static str),
    /// Name of a bucket type.
    Type,
    /// Name of a bucket.
    Bucket,
    /// A key.
    Key,
    /// One arbitrary segment.
    Any,
    /// One or more segments; always the last part.
    Rest,
}

/// The resource of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Get, put or delete of an object.
    Object,
    /// Put of an object under a key that the server makes.
    NewObject,
    /// The keys of a bucket.
    Keys,
    /// The buckets of a type.
    Buckets,
    /// The properties of a bucket.
    BucketProps,
    /// The properties of a type.
    TypeProps,
    /// Old style: properties and keys of a bucket.
    OldBucket,
    /// `/ping`.
    Ping,
    /// `/`.
    Root,
    /// `/stats`.
    Stats,
    /// `/metrics`.
    Metrics,
    /// `/health/live`.
    Live,
    /// `/health/ready`.
    Ready,
    /// A secondary-index query.
    Index,
    /// A secondary-index query of several conditions.
    CombinedIndex,
    /// Link walking.
    LinkWalk,
    /// A data type.
    DataType,
    /// A counter of Riak 1.4.
    Counter,
    /// A MapReduce job.
    MapReduce,
    /// The queue from which a Riak fetches changes on the way back of a move.
    ReplicationQueue,
    /// A feature that is not built and has no checks of its own.
    NotBuilt(Feature),
}

/// The right that a route needs while security is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteAccess {
    /// None: probes and statistics are for everybody, also without TLS.
    Open,
    /// Any user may use it.
    LoggedIn,
    /// A permission on its bucket, else on its type, else on everything.
    Needs(MethodPermissions),
    /// That to read properties, and that to list keys if the request lists them.
    PropsAndKeys,
    /// Those that the inputs of a job need.
    Job,
    /// None is enough: the resource does not go with security.
    NotWithSecurity,
}

/// The permission that each method needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodPermissions {
    /// GET and HEAD.
    pub read: KvPermission,
    /// PUT and POST.
    pub write: KvPermission,
    /// DELETE.
    pub delete: KvPermission,
}

impl MethodPermissions {
    /// The permission of a method.
    #[must_use]
    pub fn for_method(self, method: &Method) -> KvPermission {
        match *method {
            Method::GET | Method::HEAD => self.read,
            Method::DELETE => self.delete,
            _ => self.write,
        }
    }
}

/// One line of the table.
#[derive(Debug)]
pub struct Route {
    /// The pattern.
    pub parts: &'static [PathPart],
    /// Allowed methods, in the order that `Allow` lists them.
    pub methods: &'static [Method],
    /// Its resource.
    pub resource: Resource,
    /// The right that it needs while security is on.
    pub access: RouteAccess,
    /// Riak's name of the resource at `/`; empty for one that `/` does not list.
    pub name: &'static str,
}

/// The result of a lookup.
#[derive(Debug, Clone, Copy)]
pub(super) enum RouteMatch {
    /// A route for path and method.
    Route(&'static Route),
    /// A route for the path, which does not allow the method.
    NotAllowed(&'static Route),
    /// No route for the path.
    None,
}

use PathPart::{Any, Bucket, Key, Rest, Type, Word};

const READ: &[Method] = &[Method::GET, Method::HEAD];
const READ_POST: &[Method] = &[Method::GET, Method::HEAD, Method::POST];
const GET_POST: &[Method] = &[Method::GET, Method::POST];
const POST: &[Method] = &[Method::POST];
const OBJECT: &[Method] = &[Method::HEAD, Method::GET, Method::POST, Method::PUT, Method::DELETE];
const PROPS: &[Method] = &[Method::HEAD, Method::GET, Method::PUT, Method::DELETE];
const TYPE_PROPS: &[Method] = &[Method::HEAD, Method::GET, Method::PUT];
const OLD_BUCKET: &[Method] = &[Method::HEAD, Method::GET, Method::PUT];
const SEARCH: &[Method] = &[Method::GET, Method::HEAD, Method::POST];
const SEARCH_INDEX: &[Method] = &[Method::GET, Method::HEAD, Method::PUT, Method::DELETE];
const SEARCH_SCHEMA: &[Method] = &[Method::GET, Method::HEAD, Method::PUT];

const fn needs(read: KvPermission, write: KvPermission, delete: KvPermission) -> RouteAccess {
    RouteAccess::Needs(MethodPermissions { read, write, delete })
}

const fn always(permission: KvPermission) -> RouteAccess {
    needs(permission, permission, permission)
}

const DATA: RouteAccess = needs(KvPermission::Get, KvPermission::Put, KvPermission::Delete);
const OF_BUCKET: RouteAccess = needs(KvPermission::GetBucket, KvPermission::SetBucket, KvPermission::SetBucket);
const OF_TYPE: RouteAccess =
    needs(KvPermission::GetBucketType, KvPermission::SetBucketType, KvPermission::SetBucketType);
const LIST_KEYS: RouteAccess = always(KvPermission::ListKeys);
const LIST_BUCKETS: RouteAccess = always(KvPermission::ListBuckets);
const QUERY: RouteAccess = always(KvPermission::Index);
const SEARCHES: RouteAccess = always(KvPermission::SearchQuery);
const ADMINISTERS_SEARCH: RouteAccess = always(KvPermission::SearchAdmin);

const fn route(
    parts: &'static [PathPart],
    methods: &'static [Method],
    resource: Resource,
    access: RouteAccess,
    name: &'static str,
) -> Route {
    Route { parts, methods, resource, access, name }
}

const fn fold(parts: &'static [PathPart]) -> Route {
    route(parts, READ, Resource::NotBuilt(Feature::Folds), RouteAccess::LoggedIn, "riak_kv_wm_aaefold")
}

const fn queue(parts: &'static [PathPart], resource: Resource, access: RouteAccess) -> Route {
    route(parts, READ, resource, access, "riak_kv_wm_queue")
}

const fn search(parts: &'static [PathPart], methods: &'static [Method], access: RouteAccess) -> Route {
    route(parts, methods, Resource::NotBuilt(Feature::Search), access, "")
}

const OBJECTS: &str = "riak_kv_wm_object";
const BUCKETS: &str = "riak_kv_wm_buckets";
const KEYS: &str = "riak_kv_wm_keylist";
const BUCKET_PROPS: &str = "riak_kv_wm_props";
const INDEX: &str = "riak_kv_wm_index";
const LINKS: &str = "riak_kv_wm_link_walker";
const DATA_TYPES: &str = "riak_kv_wm_crdt";

/// All routes. The first one that matches path and method answers.
pub static ROUTES: &[Route] = &[
    route(&[Word("buckets"), Bucket, Word("keys"), Key], OBJECT, Resource::Object, DATA, OBJECTS),
    route(&[Word("types"), Type, Word("buckets"), Bucket, Word("keys"), Key], OBJECT, Resource::Object, DATA, OBJECTS),
    route(&[Word("riak"), Bucket, Key], OBJECT, Resource::Object, DATA, OBJECTS),
    route(&[Word("buckets"), Bucket, Word("keys")], READ, Resource::Keys, LIST_KEYS, KEYS),
    route(&[Word("types"), Type, Word("buckets"), Bucket, Word("keys")], READ, Resource::Keys, LIST_KEYS, KEYS),
    route(&[Word("buckets"), Bucket, Word("keys")], POST, Resource::NewObject, DATA, OBJECTS),
    route(&[Word("types"), Type, Word("buckets"), Bucket, Word("keys")], POST, Resource::NewObject, DATA, OBJECTS),
    route(&[Word("riak"), Bucket], OLD_BUCKET, Resource::OldBucket, RouteAccess::PropsAndKeys, BUCKETS),
    route(&[Word("riak"), Bucket], POST, Resource::NewObject, DATA, OBJECTS),
    route(&[Word("buckets")], READ, Resource::Buckets, LIST_BUCKETS, BUCKETS),
    route(&[Word("types"), Type, Word("buckets")], READ, Resource::Buckets, LIST_BUCKETS, BUCKETS),
    route(&[Word("riak")], READ, Resource::Buckets, LIST_BUCKETS, BUCKETS),
    route(&[Word("buckets"), Bucket, Word("props")], PROPS, Resource::BucketProps, OF_BUCKET, BUCKET_PROPS),
    route(
        &[Word("types"), Type, Word("buckets"), Bucket, Word("props")],
        PROPS,
        Resource::BucketProps,
        OF_BUCKET,
        BUCKET_PROPS,
    ),
    route(&[Word("types"), Type, Word("props")], TYPE_PROPS, Resource::TypeProps, OF_TYPE, "riak_kv_wm_bucket_type"),
    route(&[Word("ping")], READ, Resource::Ping, RouteAccess::LoggedIn, "riak_kv_wm_ping"),
    route(&[Word("stats")], READ, Resource::Stats, RouteAccess::Open, "riak_kv_wm_stats"),
    route(&[Word("metrics")], READ, Resource::Metrics, RouteAccess::Open, "larder_metrics"),
    route(&[Word("health"), Word("live")], READ, Resource::Live, RouteAccess::Open, ""),
    route(&[Word("health"), Word("ready")], READ, Resource::Ready, RouteAccess::Open, ""),
    route(&[], READ, Resource::Root, RouteAccess::LoggedIn, ""),
    route(&[Word("buckets"), Bucket, Word("index")], READ_POST, Resource::CombinedIndex, QUERY, ""),
    route(
        &[Word("types"), Type, Word("buckets"), Bucket, Word("index")],
        READ_POST,
        Resource::CombinedIndex,
        QUERY,
        "",
    ),
    route(&[Word("buckets"), Bucket, Word("index"), Any], READ, Resource::Index, QUERY, INDEX),
    route(&[Word("buckets"), Bucket, Word("index"), Any, Any], READ, Resource::Index, QUERY, INDEX),
    route(&[Word("buckets"), Bucket, Word("index"), Any, Any, Any], READ, Resource::Index, QUERY, INDEX),
    route(&[Word("types"), Type, Word("buckets"), Bucket, Word("index"), Any], READ, Resource::Index, QUERY, INDEX),
    route(
        &[Word("types"), Type, Word("buckets"), Bucket, Word("index"), Any, Any],
        READ,
        Resource::Index,
        QUERY,
        INDEX,
    ),
    route(
        &[Word("types"), Type, Word("buckets"), Bucket, Word("index"), Any, Any, Any],
        READ,
        Resource::Index,
        QUERY,
        INDEX,
    ),
    route(
        &[Word("buckets"), Bucket, Word("keys"), Key, Rest],
        READ_POST,
        Resource::LinkWalk,
        RouteAccess::NotWithSecurity,
        LINKS,
    ),
    route(
        &[Word("types"), Type, Word("buckets"), Bucket, Word("keys"), Key, Rest],
        READ_POST,
        Resource::LinkWalk,
        RouteAccess::NotWithSecurity,
        LINKS,
    ),
    route(&[Word("riak"), Bucket, Key, Rest], READ_POST, Resource::LinkWalk, RouteAccess::NotWithSecurity, LINKS),
    route(&[Word("buckets"), Bucket, Word("counters"), Key], GET_POST, Resource::Counter, DATA, "riak_kv_wm_counter"),
    route(
        &[Word("types"), Type, Word("buckets"), Bucket, Word("datatypes")],
        READ_POST,
        Resource::DataType,
        DATA,
        DATA_TYPES,
    ),
    route(
        &[Word("types"), Type, Word("buckets"), Bucket, Word("datatypes"), Key],
        READ_POST,
        Resource::DataType,
        DATA,
        DATA_TYPES,
    ),
    route(&[Word("mapred")], READ_POST, Resource::MapReduce, RouteAccess::Job, "riak_kv_wm_mapred"),
    search(&[Word("search"), Word("query"), Any], SEARCH, SEARCHES),
    search(&[Word("solr"), Any, Word("select")], SEARCH, SEARCHES),
    search(&[Word("search"), Word("index")], READ, ADMINISTERS_SEARCH),
    search(&[Word("search"), Word("index"), Any], SEARCH_INDEX, ADMINISTERS_SEARCH),
    search(&[Word("search"), Word("schema"), Any], SEARCH_SCHEMA, ADMINISTERS_SEARCH),
    search(&[Word("search"), Word("extract")], SEARCH, SEARCHES),
    fold(&[Word("aaebucketlist")]),
    fold(&[Word("cachedtrees"), Rest]),
    fold(&[Word("erase"), Rest]),
    fold(&[Word("objectsizes"), Rest]),
    fold(&[Word("objectstats"), Rest]),
    fold(&[Word("rangerepair"), Rest]),
    fold(&[Word("rangerepl"), Rest]),
    fold(&[Word("rangetrees"), Rest]),
    fold(&[Word("reap"), Rest]),
    fold(&[Word("siblings"), Rest]),
    fold(&[Word("tombs"), Rest]),
    queue(&[Word("membership_request")], Resource::NotBuilt(Feature::Folds), RouteAccess::LoggedIn),
    queue(&[Word("queuename"), Any], Resource::ReplicationQueue, RouteAccess::NotWithSecurity),
];

/// Looks up the route of a request.
#[must_use]
pub(super) fn find(segments: &Segments<'_>, method: &Method) -> RouteMatch {
    let mut other = RouteMatch::None;
    for route in ROUTES.iter().filter(|route| route.fits(segments)) {
        if route.methods.contains(method) {
            return RouteMatch::Route(route);
        }
        // A later route may take the same path with this method, so 405 waits for all of them.
        if matches!(other, RouteMatch::None) {
            other = RouteMatch::NotAllowed(route);
        }
    }
    other
}

impl Route {
    fn fits(&self, segments: &Segments<'_>) -> bool {
        let open = matches!(self.parts.last(), Some(Rest));
        let count = segments.count();
        if count != self.parts.len() && !(open && count > self.parts.len()) {
            return false;
        }
        let same = |(index, part): (usize, &PathPart)| match part {
            Word(word) => segments.raw(index) == *word,
            Type | Bucket | Key | Any | Rest => true,
        };
        self.parts.iter().enumerate().all(same)
    }

    /// The position of `part` in the pattern.
    #[must_use]
    pub fn place(&self, part: PathPart) -> Option<usize> {
        self.parts.iter().position(|candidate| *candidate == part)
    }

    /// Whether it is an old `/riak` path.
    #[must_use]
    pub fn is_old(&self) -> bool {
        self.parts.first() == Some(&Word("riak"))
    }

    /// The `Allow` header.
    #[must_use]
    pub fn allow(&self) -> String {
        self.methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pattern of a route as text, such as `/buckets/{bucket}/keys/{key}`.
    fn pattern(route: &Route) -> String {
        let part = |part: &PathPart| match part {
            Word(word) => format!("/{word}"),
            Type => "/{type}".into(),
            Bucket => "/{bucket}".into(),
            Key => "/{key}".into(),
            Any => "/{…}".into(),
            Rest => "/…".into(),
        };
        if route.parts.is_empty() { "/".into() } else { route.parts.iter().map(part).collect() }
    }

    #[track_caller]
    fn check(method: &str, path: &str, expected: &str) {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let resource = match find(&Segments::new(path), &method) {
            RouteMatch::Route(route) => format!("{:?}", route.resource),
            RouteMatch::NotAllowed(route) => route.allow(),
            RouteMatch::None => "none".into(),
        };
        assert_eq!(resource, expected, "{method} {path}");
    }

    #[test]
    fn a_path_finds_its_resource() {
        check("GET", "/", "Root");
        check("GET", "/ping/", "Ping");
        check("PUT", "/buckets/b/keys/k", "Object");
        check("DELETE", "/types/t/buckets/b/keys/k", "Object");
        check("GET", "/riak/b/k", "Object");
        check("POST", "/buckets/b/keys/", "NewObject");
        check("POST", "/riak/b", "NewObject");
        check("GET", "/riak/b", "OldBucket");
        check("GET", "/buckets/b/keys/k/_,_,_", "LinkWalk");
        check("GET", "/buckets/b/keys/k/a/b/c/d/e/f", "LinkWalk");
        check("GET", "/buckets/b/index/f_int/1/2", "Index");
        check("GET", "/buckets/b/index/f_int/", "Index");
        check("POST", "/types/t/buckets/b/index", "CombinedIndex");
        check("GET", "/buckets//keys/k", "none");
        check("GET", "/types", "none");
        check("GET", "/buckets/b", "none");
        check("GET", "/solr", "none");
    }

    #[test]
    fn a_method_not_allowed_gets_the_allowed_ones() {
        check("OPTIONS", "/buckets/b/keys/k", "HEAD, GET, POST, PUT, DELETE");
        check("PUT", "/buckets/b/keys/", "GET, HEAD");
        check("DELETE", "/types/t/props", "HEAD, GET, PUT");
        check("PUT", "/mapred", "GET, HEAD, POST");
        check("HEAD", "/buckets/b/counters/k", "GET, POST");
        check("POST", "/", "GET, HEAD");
    }

    #[test]
    fn open_patterns_are_open_at_their_end_only() {
        for route in ROUTES {
            let before_last = &route.parts[..route.parts.len().saturating_sub(1)];
            assert!(!before_last.contains(&Rest), "{}", pattern(route));
            assert!(route.parts.len() <= super::super::path::SEGMENTS_MAX);
        }
    }
}
