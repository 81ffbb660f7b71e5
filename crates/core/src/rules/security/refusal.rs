//! Refusals of operators' commands, with Riak's texts where it has one.

/// The reason why a command about users, groups, sources or grants is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecurityRefusal {
    /// A user or group of this name exists.
    #[error("This name is already in use")]
    NameInUse,
    /// The name is a word of the commands.
    #[error("This name is reserved for system use")]
    ReservedName,
    /// The name is empty, too long, or has a character that names must not have.
    #[error("Illegal character(s) in name")]
    IllegalName,
    /// An argument is no option.
    #[error("Invalid option \"{0}\", options are of the form key=value")]
    BadOption(String),
    /// Groups that do not exist.
    #[error("Group(s) not recognized: {0}")]
    UnknownGroups(String),
    /// A user that does not exist.
    #[error("User not recognized: {0}")]
    UnknownUser(String),
    /// Users that do not exist.
    #[error("User(s) not recognized: {0}")]
    UnknownUsers(String),
    /// A group that does not exist.
    #[error("Group not recognized: {0}")]
    UnknownGroup(String),
    /// A user or group that does not exist.
    #[error("Name not recognized: {0}")]
    UnknownName(String),
    /// Users or groups that do not exist.
    #[error("Name(s) not recognized: {0}")]
    UnknownNames(String),
    /// Names that both a user and a group have.
    #[error("Ambiguous names need to be prefixed with 'user/' or 'group/': {0}")]
    AmbiguousNames(String),
    /// A permission that does not exist.
    #[error("Permission not recognized: {0}")]
    UnknownPermission(String),
    /// Authentication by PAM, which there is none of.
    #[error("The source pam is not supported: sources are trust, password and certificate")]
    PamSource,
    /// A source that does not exist.
    #[error("Invalid source {0}: sources are trust, password and certificate")]
    UnknownSource(String),
    /// A text that is no network.
    #[error("Invalid CIDR {0}: a network is an address and a number of bits, such as 127.0.0.1/32")]
    BadNetwork(String),
    /// The users, groups, grants, sources or options would be more than this.
    #[error("There may be at most {max} {things}")]
    TooMany {
        /// Their name.
        things: &'static str,
        /// The bound.
        max: usize,
    },
    /// A text is longer than this many bytes.
    #[error("The {0} is longer than {1} bytes")]
    TooLong(&'static str, usize),
    /// No cipher of a list exists here.
    #[error("No known or supported ciphers in list.")]
    NoCipher,
}
