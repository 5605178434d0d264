"""Known differences of azurite 3.35 from the production service.

Each entry is a pattern of test names, parameters included, and the emulator's behaviour.
A matching test must fail with the emulator.
"""

MISMATCH = "values of other types are converted, or compare by their text"
LITERAL = "this literal is not understood"
UNCHECKED = "is not checked"
CODE = "answers AuthorizationFailure, or another code"
SAS_GROUP = (
    "a group signed for one table is refused, and rights to a group are those of the request"
)
RANGE = "ranges of keys are not enforced"
ACL = "a policy must have all of its fields, and times and letters are not checked"
SETTINGS = "empty lists of headers are refused, and numbers are not checked"
KEYS = "reads such keys wrong in a group"
ZEROS = "fractions of seconds are kept as they were given, and an ETag has seven digits"

EMULATOR = {
    # Tables.
    r"test_bad_(characters|lengths).*": "errors of names have no code",
    r"test_the_reserved_name.*": "errors of names have no code",
    r"test_creation_answers_201_or_204_as_preferred": "sends no Location",
    r"test_tables_are_listed_in_order.*": "tables are ordered by their names as given",
    r"test_pages_of_tables.*": "tables are ordered by their names as given",
    # Entities.
    r"test_252_properties.*": UNCHECKED,
    r"test_a_name_of_256_characters.*": UNCHECKED,
    r"test_bad_names_of_properties.*": UNCHECKED,
    r"test_an_entity_of_nearly_a_mebibyte.*": "only the size of the request is checked",
    r"test_insert_echoes.*": "sends Preference-Applied without having been asked",
    r"test_get_with_a_selection": "`*` selects nothing",
    r"test_a_selected_property_the_entity_lacks_is_null": "leaves it out",
    r"test_levels_of_metadata.*": ZEROS,
    # Types.
    r"test_times\[.*(?<!\d{6})Z\]": ZEROS,
    r"test_times_in_ticks.*(\.1Z|08:00:00Z|30:00\.5Z)\]": ZEROS,
    r"test_times_out_of_range.*": UNCHECKED,
    r"test_a_malformed_guid.*": UNCHECKED,
    r"test_a_malformed_time\[.+\]": UNCHECKED,
    # ETags.
    r"test_the_fraction_of_an_etag.*": ZEROS,
    r"test_a_malformed_etag\[(test-merge|W/.*)\]": "any text is an ETag that does not match",
    # Queries.
    r"test_a_parameter_of_each_type\[(binary|guid|large).*": MISMATCH,
    r"test_literals_of_each_type\[V eq (5L|2\.5D|25\.0E-1).*": LITERAL,
    r"test_literals_of_each_type\[(V eq (5|guid|X|binary)|V)[-'].*": MISMATCH,
    r"test_greater_than_a_literal.*(5L|2\.4|X'00'|false).*": MISMATCH,
    r"test_another_type_is_less.*": MISMATCH,
    r"test_filters_that_are_refused.*(open|3000000000|null|\(RowKey|\(.0|add|N eq N).*": LITERAL,
    r"test_a_page_of_none.*": "a page of none has a token",
    r"test_a_malformed_token": "any text is a token",
    # Transactions.
    r"test_several_partitions": UNCHECKED,
    r"test_a_hundred_and_one_operations": "answers a body that is no multipart",
    r"test_no_operation": "answers 500",
    r"test_more_than_four_mebibytes_of_entities": "takes them; rowstone's own limit, see README.md",
    r"test_an_operation_that_breaks_a_limit.*(Invalid|TooLong|TooManyProperties)\]": UNCHECKED,
    # Keys.
    r"test_every.*unusual_key\[.*(r'\)|b')-(PartitionKey|both)\]": KEYS,
    r"test_every.*unusual_key.*ufeff.*": KEYS,
    r"test_an_insert_with_a_forbidden_character.*": "answers InvalidInput",
    r"test_forbidden_characters_in_an_address.*": "answers 500, InvalidInput, or takes them",
    r"test_a_long_key.*": "a key has at most 512 characters",
    # The service.
    r"test_settings_are_stored": SETTINGS,
    r"test_omitted_settings_are_kept.*": SETTINGS,
    r"test_a_retention.*": SETTINGS,
    r"test_six_rules_are_too_many": SETTINGS,
    r"test_the_secondary_is_not_written": "writes there",
    r"test_policies_(are_stored|with_times|that_are_malformed).*": ACL,
    r"test_names_of_policies": ACL,
    # Signatures.
    r"test_letters_of_a_tables_signature\[(?![rd]\]).*": SAS_GROUP,
    r"test_letters_of_the_accounts_signature\[[dru]\]": SAS_GROUP,
    r"test_which_permission_is_missing": CODE,
    r"test_a_tables_signature_is_for_entities_of_that_table": "makes tables with it",
    r"test_times_of_(a_tables|the_accounts)_signature": CODE,
    r"test_addresses_and_protocols": UNCHECKED,
    r"test_a_signature_(that_was_tampered_with|by_another_key)": CODE,
    r"test_ranges_of_a_signature.*": RANGE,
    r"test_a_group_within_and_across_a_range": RANGE,
    r"test_a_stored_policy_grants_and_revokes": CODE,
    r"test_fields_from_the_policy.*": ACL,
    r"test_a_field_in_the_policy.*": ACL,
    r"test_a_policy_with_a_range": ACL,
    # The asynchronous client.
    r"test_settings_policies_and_signatures": "a listing needs a signature for containers",
    # Errors.
    r"test_the_body_of_an_error": "the time has three digits",
    r"test_headers_of_every_answer": "answers with its own version",
    r"test_versions_of_the_interface.*": "answers with its own version",
    r"test_the_wrong_key": CODE,
    r"test_a_connection_string_with_a_wrong_key": CODE,
    r"test_a_clock_that_is_wrong.*": UNCHECKED,
}
