BEGIN TRANSACTION;
CREATE TABLE evaluations (
	id INTEGER NOT NULL, 
	recipe_id INTEGER NOT NULL, 
	coalition TEXT NOT NULL, 
	replicate INTEGER NOT NULL, 
	purpose VARCHAR NOT NULL, 
	status VARCHAR NOT NULL, 
	error TEXT, 
	numerics JSON NOT NULL, 
	seconds JSON NOT NULL, 
	versions JSON NOT NULL, 
	worker VARCHAR NOT NULL, 
	started VARCHAR NOT NULL, 
	finished VARCHAR NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT failed_has_error CHECK ((status = 'done') = (error IS NULL)), 
	FOREIGN KEY(recipe_id) REFERENCES recipes (id)
);
INSERT INTO "evaluations" VALUES(1,1,'0110',0,'estimate','done',NULL,'{"device":"cpu","threads":1}','{"measuring":0.0,"sampling":0.1,"training":1.25}','{"torch":"2.6.0"}','machine:17','2025-01-31T12:00:00.000+00:00','2025-01-31T12:00:01.350+00:00');
INSERT INTO "evaluations" VALUES(2,1,'1111',0,'estimate','failed','Traceback: out of memory','{"device":"cpu","threads":1}','{"measuring":0.0,"sampling":0.1,"training":1.25}','{"torch":"2.6.0"}','machine:17','2025-01-31T12:00:00.000+00:00','2025-01-31T12:00:01.350+00:00');
INSERT INTO "evaluations" VALUES(3,1,'1111',0,'endpoint','done',NULL,'{"device":"cpu","threads":1}','{"measuring":0.0,"sampling":0.1,"training":1.25}','{"torch":"2.6.0"}','machine:17','2025-01-31T12:00:00.000+00:00','2025-01-31T12:00:01.350+00:00');
CREATE TABLE properties (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	settings JSON NOT NULL, 
	higher_is_better BOOLEAN NOT NULL, 
	state VARCHAR NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (study_id, name), 
	FOREIGN KEY(study_id) REFERENCES studies (id)
);
INSERT INTO "properties" VALUES(1,2,'quality','{"clusters":20}',1,'def');
INSERT INTO "properties" VALUES(2,2,'diversité «½»','{}',0,'');
CREATE TABLE property_values (
	id INTEGER NOT NULL, 
	evaluation_id INTEGER NOT NULL, 
	property_id INTEGER NOT NULL, 
	value DOUBLE, 
	standard_error DOUBLE, 
	images INTEGER, 
	error TEXT, 
	PRIMARY KEY (id), 
	CONSTRAINT value_or_error CHECK ((value IS NULL) <> (error IS NULL)), 
	FOREIGN KEY(evaluation_id) REFERENCES evaluations (id), 
	FOREIGN KEY(property_id) REFERENCES properties (id)
);
INSERT INTO "property_values" VALUES(1,1,1,0.5,0.1,NULL,NULL);
INSERT INTO "property_values" VALUES(2,1,2,NULL,NULL,NULL,'no features');
INSERT INTO "property_values" VALUES(3,3,1,3.33333333333333314829e-01,0.1,NULL,NULL);
INSERT INTO "property_values" VALUES(4,3,2,-2.0e-300,NULL,NULL,NULL);
INSERT INTO "property_values" VALUES(5,1,2,2.5,NULL,NULL,NULL);
CREATE TABLE recipes (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	settings JSON NOT NULL, 
	weights VARCHAR NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (study_id, name), 
	FOREIGN KEY(study_id) REFERENCES studies (id)
);
INSERT INTO "recipes" VALUES(1,2,'sparsified','{"data":{"resolution":32},"retraining":{"method":"sparsified","steps":100},"seed":0}','abc');
CREATE TABLE schema_version (
	version INTEGER NOT NULL
);
INSERT INTO "schema_version" VALUES(2);
CREATE TABLE studies (
	id INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	settings JSON NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (name)
);
INSERT INTO "studies" VALUES(1,'other','{"contributors":["x"]}');
INSERT INTO "studies" VALUES(2,'openmoji','{"contributors":["a","b","c","d"]}');
CREATE INDEX ix_evaluations_recipe_id ON evaluations (recipe_id);
CREATE UNIQUE INDEX one_success ON evaluations (recipe_id, coalition, replicate) WHERE status = 'done';
CREATE UNIQUE INDEX one_value ON property_values (evaluation_id, property_id) WHERE error IS NULL;
CREATE INDEX ix_property_values_evaluation_id ON property_values (evaluation_id);
COMMIT;
