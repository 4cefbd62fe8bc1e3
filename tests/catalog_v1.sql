BEGIN TRANSACTION;
CREATE TABLE components (
	id INTEGER NOT NULL,
	replica_id INTEGER NOT NULL,
	number INTEGER NOT NULL,
	path VARCHAR NOT NULL,
	size BIGINT NOT NULL,
	inode BIGINT NOT NULL,
	mtime_ns BIGINT NOT NULL,
	crc32c BIGINT NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (replica_id, number),
	FOREIGN KEY(replica_id) REFERENCES replicas (id) ON DELETE CASCADE
);
INSERT INTO "components" VALUES(1,1,0,'/pool/1.0',512,-9223372036854775808,99,4294967295);
INSERT INTO "components" VALUES(2,1,1,'/pool/1.1',512,-9223372036854775807,99,4294967295);
CREATE TABLE extents (
	component_id INTEGER NOT NULL,
	"offset" BIGINT NOT NULL,
	length BIGINT NOT NULL,
	crc32c BIGINT NOT NULL,
	PRIMARY KEY (component_id, "offset"),
	FOREIGN KEY(component_id) REFERENCES components (id) ON DELETE CASCADE
);
INSERT INTO "extents" VALUES(1,0,512,1);
INSERT INTO "extents" VALUES(2,0,512,2);
CREATE TABLE meta (
	"key" VARCHAR(32) NOT NULL,
	value VARCHAR(64) NOT NULL,
	PRIMARY KEY ("key")
);
INSERT INTO "meta" VALUES('schema','1');
INSERT INTO "meta" VALUES('token','2c074a15');
INSERT INTO "meta" VALUES('generation','7');
CREATE TABLE originals (
	id INTEGER NOT NULL,
	path VARCHAR NOT NULL,
	device BIGINT NOT NULL,
	inode BIGINT NOT NULL,
	size BIGINT NOT NULL,
	mtime_ns BIGINT NOT NULL,
	ctime_ns BIGINT NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (device, inode)
);
INSERT INTO "originals" VALUES(1,'/data',-3,-9223372036854775803,4096,1700000000123456789,1700000000987654321);
CREATE TABLE replicas (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	original_id INTEGER NOT NULL,
	signature JSON NOT NULL,
	access_map JSON NOT NULL,
	layout JSON NOT NULL,
	pool VARCHAR NOT NULL,
	size BIGINT NOT NULL,
	state VARCHAR(16) NOT NULL,
	why VARCHAR NOT NULL,
	created DATETIME NOT NULL,
	CHECK (state IN ('building', 'valid', 'stale', 'retired')),
	FOREIGN KEY(original_id) REFERENCES originals (id)
);
INSERT INTO "replicas" VALUES(1,1,'{"file": "/data", "op": "read", "collective": true, "start": 5, "length": 64, "loops": [[64, 2], [256, 8]], "ranks": [4, 6], "rank_loops": 1, "calls": 16, "t_start": 0.0, "t_end": 1.5}','{"loops": [[8, 256, 64], [2, 64, 512]], "start": 5, "length": 64, "replica_start": 0}','{"pool": "disk", "servers": 2, "groups": 1, "strips": [64, 128], "section": 512}','disk',1024,'valid','','2026-11-21 15:08:09.876751');
CREATE TABLE results (
	id INTEGER NOT NULL,
	time DATETIME NOT NULL,
	report JSON NOT NULL,
	PRIMARY KEY (id)
);
INSERT INTO "results" VALUES(1,'2026-11-21 15:08:09.943814','{"command": "./app", "ranks": 4}');
CREATE INDEX ix_replicas_original_id ON replicas (original_id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('replicas',1);
COMMIT;
