PRAGMA user_version=1;
PRAGMA application_id=1380795458;
BEGIN TRANSACTION;
CREATE TABLE approval (
    id TEXT PRIMARY KEY, session_id TEXT NOT NULL, state TEXT NOT NULL, asked_at REAL NOT NULL,
    document TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "approval" VALUES('6b6722570a','b','open',120.0,'{"id":"6b6722570a","session_id":"b","reason":"permission","tool":"Bash","input":{"command":"touch made"},"asked_at":120.0,"tool_use_id":"t1","suggestions":[],"detail":{"message":"Bash: touch made"},"expires_at":null,"state":"open","answer":null,"by":null,"at":null,"delivered_at":null,"proof":null}');
CREATE TABLE base (
    session_id TEXT PRIMARY KEY, at REAL NOT NULL, document TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE claim (
    place TEXT PRIMARY KEY, session_id TEXT NOT NULL, at REAL NOT NULL, pid INTEGER
) WITHOUT ROWID;
INSERT INTO "claim" VALUES('pane  %1','a',100.0,NULL);
INSERT INTO "claim" VALUES('pane  %2','b',110.0,NULL);
INSERT INTO "claim" VALUES('pane  %3','c',130.0,NULL);
CREATE TABLE event (
    session_id TEXT NOT NULL, id TEXT NOT NULL, at REAL NOT NULL, source INTEGER NOT NULL, kind TEXT NOT NULL,
    facts TEXT NOT NULL, PRIMARY KEY (session_id, id)
) WITHOUT ROWID;
INSERT INTO "event" VALUES('a','a:stopped:100.0',100.0,1,'stopped','{"message":"a is done","pane":"%1","cwd":"/srv/a"}');
INSERT INTO "event" VALUES('b','b:asked:120.0',120.0,1,'asked','{"tool":"Bash","input":{"command":"touch made"},"message":"Bash: touch made","tool_use_id":"t1"}');
INSERT INTO "event" VALUES('b','b:prompted:110.0',110.0,1,'prompted','{"prompt":"go","pane":"%2","cwd":"/srv/b"}');
INSERT INTO "event" VALUES('c','c:prompted:140.0',140.0,1,'prompted','{"prompt":"more"}');
INSERT INTO "event" VALUES('c','c:stopped:130.0',130.0,1,'stopped','{"message":"c \u00fc \u4e2d","pane":"%3"}');
CREATE TABLE item (
    id TEXT PRIMARY KEY, session_id TEXT NOT NULL, resolved_at REAL, document TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "item" VALUES('01e74e5f6a','a',NULL,'{"id":"01e74e5f6a","session_id":"a","reason":"stopped","since":100.0,"message":"a is done","detail":{},"skip_until":null,"skipped_at":null,"snooze_until":5000.0,"resolved_at":null,"resolution":null}');
INSERT INTO "item" VALUES('7926c21f85','c',140.0,'{"id":"7926c21f85","session_id":"c","reason":"stopped","since":130.0,"message":"c \u00fc \u4e2d","detail":{},"skip_until":null,"skipped_at":null,"snooze_until":null,"resolved_at":140.0,"resolution":"prompted"}');
CREATE TABLE note (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "note" VALUES('probe','kept');
CREATE TABLE session (
    id TEXT PRIMARY KEY, state TEXT NOT NULL, last_seen REAL NOT NULL, ended REAL, document TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "session" VALUES('a','stopped',100.0,NULL,'{"id":"a","origin":"hooks","agent":"claude","name":null,"pane":"%1","tmux":null,"pid":null,"cwd":"/srv/a","repo":null,"transcript_path":null,"entrypoint":null,"title":null,"state":"stopped","since":100.0,"first_seen":100.0,"last_seen":100.0,"ended":null,"replaced_by":null,"dated":{"cwd":100.0,"pane":100.0}}');
INSERT INTO "session" VALUES('b','working',110.0,NULL,'{"id":"b","origin":"hooks","agent":"claude","name":null,"pane":"%2","tmux":null,"pid":null,"cwd":"/srv/b","repo":null,"transcript_path":null,"entrypoint":null,"title":null,"state":"working","since":110.0,"first_seen":110.0,"last_seen":110.0,"ended":null,"replaced_by":null,"dated":{"cwd":110.0,"pane":110.0}}');
INSERT INTO "session" VALUES('c','stopped',130.0,NULL,'{"id":"c","origin":"hooks","agent":"claude","name":null,"pane":"%3","tmux":null,"pid":null,"cwd":null,"repo":null,"transcript_path":null,"entrypoint":null,"title":null,"state":"stopped","since":130.0,"first_seen":130.0,"last_seen":130.0,"ended":null,"replaced_by":null,"dated":{"pane":130.0}}');
CREATE INDEX item_resolved ON item (resolved_at);
CREATE INDEX item_session ON item (session_id, resolved_at);
CREATE INDEX approval_asked ON approval (asked_at);
CREATE INDEX approval_session ON approval (session_id, asked_at);
COMMIT;
