BEGIN TRANSACTION;
CREATE TABLE applications (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	command TEXT NOT NULL, 
	ranks INTEGER NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (digest)
);
INSERT INTO "applications" VALUES(1,'913da1f8df6f8fd47593840d533ba0458cc9873996bf310460abb495b34c232a','',2);
CREATE TABLE components (
	id INTEGER NOT NULL, 
	replica_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	path TEXT NOT NULL, 
	size BIGINT NOT NULL, 
	inode BIGINT NOT NULL, 
	mtime_ns BIGINT NOT NULL, 
	crc32c BIGINT NOT NULL, 
	placement TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (replica_id, number), 
	FOREIGN KEY(replica_id) REFERENCES replicas (id) ON DELETE CASCADE
);
INSERT INTO "components" VALUES(1,1,0,'/tmp/tmpp80iof_5/home/pools/0/pdla-replicas-0/9015fb04/1.0',4194304,12017980,1795656540797484218,2920018637,'');
INSERT INTO "components" VALUES(2,1,1,'/tmp/tmpp80iof_5/home/pools/1/pdla-replicas-0/9015fb04/1.1',4194304,12017981,1795656540925484223,2734913536,'');
INSERT INTO "components" VALUES(3,1,2,'/tmp/tmpp80iof_5/home/pools/2/pdla-replicas-0/9015fb04/1.2',4194304,12017982,1795656540925484223,1560796899,'');
INSERT INTO "components" VALUES(4,1,3,'/tmp/tmpp80iof_5/home/pools/3/pdla-replicas-0/9015fb04/1.3',4194304,12017983,1795656540929484224,2125841422,'');
CREATE TABLE critical (
	id INTEGER NOT NULL, 
	path TEXT NOT NULL, 
	reads JSON NOT NULL, 
	seen DATETIME NOT NULL, 
	replica_id INTEGER, 
	PRIMARY KEY (id), 
	UNIQUE (path)
);
CREATE TABLE extents (
	component_id INTEGER NOT NULL, 
	"offset" BIGINT NOT NULL, 
	length BIGINT NOT NULL, 
	crc32c BIGINT NOT NULL, 
	PRIMARY KEY (component_id, "offset"), 
	FOREIGN KEY(component_id) REFERENCES components (id) ON DELETE CASCADE
);
INSERT INTO "extents" VALUES(1,0,4194304,2920018637);
INSERT INTO "extents" VALUES(2,0,4194304,2734913536);
INSERT INTO "extents" VALUES(3,0,4194304,1560796899);
INSERT INTO "extents" VALUES(4,0,4194304,2125841422);
CREATE TABLE leases (
	resource VARCHAR(255) NOT NULL, 
	holder VARCHAR NOT NULL, 
	token BIGINT NOT NULL, 
	expires DOUBLE NOT NULL, 
	PRIMARY KEY (resource)
);
CREATE TABLE meta (
	"key" VARCHAR(32) NOT NULL, 
	value VARCHAR(64) NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "meta" VALUES('schema','7');
INSERT INTO "meta" VALUES('token','9015fb04');
INSERT INTO "meta" VALUES('generation','1');
INSERT INTO "meta" VALUES('fence','1');
CREATE TABLE occurrences (
	run_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	pattern_id INTEGER NOT NULL, 
	calls BIGINT NOT NULL, 
	t_start DOUBLE NOT NULL, 
	t_end DOUBLE NOT NULL, 
	aspects JSON NOT NULL, 
	PRIMARY KEY (run_id, number), 
	FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE, 
	FOREIGN KEY(pattern_id) REFERENCES patterns (id)
);
INSERT INTO "occurrences" VALUES(1,0,1,8,0.020200001,0.033950624,'{"spatial": "strided", "size": "small", "temporal": "random", "period": 0.0, "repetition": "once", "operation": "read-only", "dependences": [], "phases": [0, 0]}');
CREATE TABLE originals (
	id INTEGER NOT NULL, 
	path TEXT NOT NULL, 
	device BIGINT NOT NULL, 
	inode BIGINT NOT NULL, 
	size BIGINT NOT NULL, 
	mtime_ns BIGINT NOT NULL, 
	ctime_ns BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (device, inode)
);
INSERT INTO "originals" VALUES(1,'/tmp/tmpp80iof_5/data',65024,11895986,16777216,1795656540597255629,1795656540597255629);
CREATE TABLE patterns (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	file TEXT NOT NULL, 
	op VARCHAR(8) NOT NULL, 
	scope VARCHAR(8) NOT NULL, 
	ranks INTEGER NOT NULL, 
	requests BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	signature JSON NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (digest)
);
INSERT INTO "patterns" VALUES(1,'1771269d66858d7085e0f9ab9f5d3279d28c38e781c88a87a2373f710ab350a7','/tmp/tmpp80iof_5/slabs.dat','read','global',2,128,16384,'{"file": "/tmp/tmpp80iof_5/slabs.dat", "op": "read", "collective": true, "start": 0, "length": 128, "loops": [[128, 2], [256, 64]], "ranks": [0, 1], "rank_loops": 1, "calls": 0, "t_start": 0.0, "t_end": 0.0, "growth": []}');
CREATE TABLE phases (
	run_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	file TEXT NOT NULL, 
	phase INTEGER NOT NULL, 
	begins VARCHAR(8) NOT NULL, 
	t_start DOUBLE NOT NULL, 
	t_end DOUBLE NOT NULL, 
	ranks INTEGER NOT NULL, 
	calls BIGINT NOT NULL, 
	bytes_read BIGINT NOT NULL, 
	bytes_written BIGINT NOT NULL, 
	PRIMARY KEY (run_id, number), 
	FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
INSERT INTO "phases" VALUES(1,0,'/tmp/tmpp80iof_5/slabs.dat',0,'open',0.020200001,0.033950624,2,8,16384,0);
CREATE TABLE plans (
	id INTEGER NOT NULL, 
	created DATETIME NOT NULL, 
	document JSON NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE queue (
	pattern_id INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	since DATETIME NOT NULL, 
	plan_id INTEGER, 
	why TEXT NOT NULL, 
	PRIMARY KEY (pattern_id), 
	FOREIGN KEY(pattern_id) REFERENCES patterns (id) ON DELETE CASCADE, 
	FOREIGN KEY(plan_id) REFERENCES plans (id)
);
INSERT INTO "queue" VALUES(1,'queued','2026-11-26 01:28:57.084351',NULL,'');
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
	purpose VARCHAR(8) NOT NULL, 
	fence BIGINT NOT NULL, 
	runs INTEGER NOT NULL, 
	bytes_read BIGINT NOT NULL, 
	used DATETIME, 
	CONSTRAINT replicas_state CHECK (state IN ('planned', 'building', 'valid', 'dirty', 'stale', 'retired')), 
	CONSTRAINT replicas_purpose CHECK (purpose IN ('read', 'write')), 
	FOREIGN KEY(original_id) REFERENCES originals (id)
);
INSERT INTO "replicas" VALUES(1,1,'{"file": "/tmp/tmpp80iof_5/data", "op": "read", "collective": true, "start": 0, "length": 4096, "loops": [[4096, 4], [16384, 1024]], "ranks": [0, 1, 2, 3], "rank_loops": 1, "calls": 0, "t_start": 0.0, "t_end": 0.0, "growth": []}','{"loops": [[1024, 16384, 4096], [4, 4096, 4194304]], "start": 0, "length": 4096, "replica_start": 0}','{"pool": "disks", "servers": 4, "groups": 1, "strips": [65536, 65536, 65536, 65536], "section": 4194304}','disks',16777216,'valid','','2026-11-26 01:29:00.720358','read',1,0,0,NULL);
CREATE TABLE results (
	id INTEGER NOT NULL, 
	run VARCHAR(64), 
	time DATETIME NOT NULL, 
	report JSON NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "results" VALUES(1,'run.7311049b20be6bbe','2026-11-26 01:29:01.478279','{"version": 1, "command": "mpiexec -n 2 python slabs.py slabs.dat 4 16 64", "ranks": 2, "generation": 1, "map": {"ok": 2}, "unreadable": 0, "killed": 0, "seconds": 0.0, "redirected_calls": 0, "redirected_bytes": 0, "replica_requests": 0, "replica_contiguous": 0, "replica_bytes": 0, "original_requests": 0, "original_contiguous": 0, "passed": [], "files": [], "writes": [], "cache": null, "caches": []}');
CREATE TABLE runs (
	id INTEGER NOT NULL, 
	application_id INTEGER NOT NULL, 
	trace VARCHAR(64) NOT NULL, 
	path TEXT NOT NULL, 
	source VARCHAR(16) NOT NULL, 
	started DATETIME, 
	analyzed DATETIME NOT NULL, 
	mpi VARCHAR NOT NULL, 
	hosts JSON NOT NULL, 
	environment JSON NOT NULL, 
	files JSON NOT NULL, 
	requests BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(application_id) REFERENCES applications (id), 
	UNIQUE (trace)
);
INSERT INTO "runs" VALUES(1,1,'51882c8c1779253a01154e7e003597060c1edb222bc8b0175ea01203c8cd4572','/tmp/tmpp80iof_5/run.h5','pdla','2026-11-26 01:28:54.261257','2026-11-26 01:28:57.076074','MPICH Version: 5.0.2','["vm"]','{}','["/tmp/tmpp80iof_5/slabs.dat"]',128,16384);
CREATE TABLE simulations (
	id INTEGER NOT NULL, 
	time DATETIME NOT NULL, 
	answer JSON NOT NULL, 
	PRIMARY KEY (id)
);
CREATE UNIQUE INDEX ix_results_run ON results (run);
CREATE INDEX ix_replicas_original_id ON replicas (original_id);
CREATE INDEX ix_runs_application_id ON runs (application_id);
CREATE INDEX ix_queue_state ON queue (state);
CREATE INDEX ix_occurrences_pattern_id ON occurrences (pattern_id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('replicas',1);
COMMIT;
