//! The Table service's error codes that the library itself can return, each with name, HTTP status,
//! text and kind.

use super::ErrorKind;

macro_rules! codes {
    ($($code:ident $status:literal $kind:ident $message:literal)*) => {
        /// A code of the Table service.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = $message] $code,)*
        }

        impl Code {
            #[cfg(any(test, feature = "json"))]
            pub(crate) const ALL: &[Code] = &[$(Code::$code,)*];

            /// Returns the code as it is sent on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$code => stringify!($code),)* }
            }

            /// Returns the HTTP status of the code.
            pub fn status(self) -> u16 {
                match self { $(Code::$code => $status,)* }
            }

            pub(crate) fn kind(self) -> ErrorKind {
                match self { $(Code::$code => ErrorKind::$kind,)* }
            }

            pub(crate) fn message(self) -> std::borrow::Cow<'static, str> {
                match self { $(Code::$code => $message,)* }.into()
            }
        }
    };
}

codes! {
    CommandsInBatchActOnDifferentPartitions 400 InvalidInput "All commands in a batch must operate on same entity group."
    DuplicatePropertiesSpecified 400 InvalidInput "A property is specified more than one time."
    EntityAlreadyExists 409 AlreadyExists "The specified entity already exists."
    EntityTooLarge 400 InvalidInput "The entity is larger than the maximum allowed size (1MB)."
    InternalError 500 Io "Server encountered an internal error. Please try again after some time."
    InvalidDuplicateRow 400 InvalidInput "The batch request contains multiple changes with same row key. An entity can appear only once in a batch request."
    InvalidInput 400 InvalidInput "One of the request inputs is not valid."
    InvalidResourceName 400 InvalidInput "The specifed resource name contains invalid characters."
    InvalidValueType 400 InvalidInput "The value specified is invalid."
    NotImplemented 501 NotImplemented "The requested operation is not implemented on the specified resource."
    OperationTimedOut 500 Timeout "The operation could not be completed within the permitted time."
    OutOfRangeInput 400 InvalidInput "One of the request inputs is out of range."
    PropertiesNeedValue 400 InvalidInput "The values are not specified for all properties in the entity."
    PropertyNameInvalid 400 InvalidInput "The property name is invalid."
    PropertyNameTooLong 400 InvalidInput "The property name exceeds the maximum allowed length."
    PropertyValueTooLarge 400 InvalidInput "The property value exceeds the maximum allowed size (64KB). If the property value is a string, it is UTF-16 encoded and the maximum number of characters should be 32K or less."
    RequestBodyTooLarge 413 InvalidInput "The request body is too large and exceeds the maximum permissible limit."
    ResourceNotFound 404 NotFound "The specified resource does not exist."
    ServerBusy 503 Busy "The server is currently unable to receive requests. Please retry your request."
    StorageFull 507 StorageFull "The storage is full. Free space and retry."
    TableAlreadyExists 409 AlreadyExists "The table specified already exists."
    TableBeingDeleted 409 Busy "The specified table is being deleted."
    TableNotFound 404 NotFound "The table specified does not exist."
    TooManyProperties 400 InvalidInput "The entity contains more properties than allowed."
    UpdateConditionNotSatisfied 412 PreconditionFailed "The update condition specified in the request was not satisfied."
}

impl Code {
    /// Returns the code with which an engine error of `kind` is reported.
    pub(super) fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotFound => Code::ResourceNotFound,
            ErrorKind::AlreadyExists => Code::EntityAlreadyExists,
            ErrorKind::PreconditionFailed => Code::UpdateConditionNotSatisfied,
            ErrorKind::InvalidInput => Code::InvalidInput,
            ErrorKind::Busy => Code::ServerBusy,
            ErrorKind::Timeout => Code::OperationTimedOut,
            ErrorKind::StorageFull => Code::StorageFull,
            ErrorKind::NotImplemented => Code::NotImplemented,
            _ => Code::InternalError,
        }
    }
}
