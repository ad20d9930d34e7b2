"""From results to what people read: sections of sentences, tables, figures and photographs, kept as files."""
