// Known differences of azurite 3.35 from the production service: pairs of a pattern of test names
// and the emulator's behaviour. A matching test must fail with the emulator.

const UNCHECKED = "is not checked";
const CODE = "answers AuthorizationFailure, or another code";

export const EMULATOR = [
  // Tables.
  [/names that are refused/, "errors of names have no code"],
  [/pages of tables, and a resumed listing/, "tables are ordered by their names as given"],
  // Entities.
  [/an update sent as tunnelled PUT/, "inserts instead"],
  [/a malformed etag, for .*/, "any text is an ETag that does not match"],
  [/a selected property the entity lacks is null/, "leaves it out"],
  [/names and counts of properties/, UNCHECKED],
  [/sizes/, "the size of the request is checked, not of the entity"],
  [/every operation with the key .*(RowKey|\ufeff).*/s, "reads such keys wrong in a group"],
  [/an insert with the forbidden key .*/s, "answers InvalidInput"],
  // Types.
  [/beyond int64/, UNCHECKED],
  [/times( in ticks and zones)?/, "times are kept as they were given"],
  [/times out of range/, UNCHECKED],
  [/guids/, "upper case is kept"],
  [/values that do not fit their type/, UNCHECKED],
  // Queries.
  [/pages that are too large/, UNCHECKED],
  [/filters that are refused/, UNCHECKED],
  [/a literal of each type/, "values of other types are converted, or compare by their text"],
  // Transactions.
  [/several partitions/, UNCHECKED],
  [/an operation that breaks a limit/, UNCHECKED],
  // The service.
  [/the secondary is read and not written/, "writes there"],
  [
    /policies (are stored and replaced|that are refused)/,
    "a policy must have all of its fields, and letters are not checked",
  ],
  [/the wrong key/, CODE],
  [/a clock that is wrong/, UNCHECKED],
  [/versions of the interface/, "answers with its own version"],
  [/the body of an error/, "the time has three digits"],
  // Signatures.
  [/the account's signature with [rud]/, "rights to a group are those of the request"],
  [/a table's signature with .*/, "a group signed for one table is refused"],
  [
    /a signature within the address or the connection string/,
    "a group signed for one table is refused",
  ],
  [/a range of keys: .*/, "ranges of keys are not enforced"],
  [/times, addresses, protocols/, CODE],
  [/a signature by another key, or tampered with/, CODE],
  [/a table's signature is for entities of that table/, "makes tables with it"],
  [/a stored policy grants and revokes/, CODE],
];
