//! Tests of notes: named texts that the catalog stores for a table or for the whole database.

use super::*;

#[test]
fn notes_survive_a_reopen_and_are_removed_with_their_table() {
    let fs = MemFs::new();
    let db = open(&fs);
    db.create_table("People").unwrap();
    // This text is stored in several properties of its catalog row. The limit of 32 KiB per
    // property falls inside a character of three bytes, which must not be split.
    let long = "x".to_owned() + &"€".repeat(40_000);
    db.catalog.set_note(Some("people"), "acl", Some(&long)).unwrap();
    db.catalog.set_note(None, "service", Some("")).unwrap();
    db.catalog.set_note(None, "gone", Some("text")).unwrap();
    db.catalog.set_note(None, "gone", None).unwrap();
    let check = |db: &Db| {
        assert_eq!(db.catalog.note(Some("PEOPLE"), "acl").unwrap().as_deref(), Some(&*long));
        assert_eq!(db.catalog.note(None, "service").unwrap().as_deref(), Some(""));
        assert_eq!(db.catalog.note(None, "gone").unwrap(), None);
    };
    check(&db);
    let db = open(&fs.crash_image(3));
    check(&db);
    db.delete_table("People").unwrap();
    db.create_table("People").unwrap();
    assert_eq!(db.catalog.note(Some("People"), "acl").unwrap(), None);
    let missing = db.catalog.set_note(Some("Other"), "acl", Some("")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let too_long = "x".repeat((512 << 10) + 1);
    let refused = db.catalog.set_note(None, "service", Some(&too_long)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
}
