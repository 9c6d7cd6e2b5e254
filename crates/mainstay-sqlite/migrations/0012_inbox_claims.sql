-- A dead message that comes again has a row of its own in the queue. It may have been marked while a worker had it: whoever has the old row finds that
-- it is gone.
CREATE TRIGGER "{{schema}}_{{inbox}}_revived" AFTER UPDATE OF work_item_id ON "{{schema}}_{{inbox}}_entry"
WHEN OLD.state = 3 AND OLD.work_item_id IS NOT NULL AND NEW.work_item_id IS NOT OLD.work_item_id
BEGIN
    DELETE FROM "{{schema}}_{{inbox}}" WHERE id = OLD.work_item_id;
END;
