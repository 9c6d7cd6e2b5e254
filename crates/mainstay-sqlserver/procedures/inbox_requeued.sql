    UPDATE e SET "State" = 0, "ProcessedAt" = NULL, "Attempts" = 0 FROM "{{schema}}"."{{inbox}}_entry" e JOIN @Hit x ON x."Id" = e."WorkItemId" WHERE e."State" = 3;
