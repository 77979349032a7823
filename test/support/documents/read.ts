import type { DocumentType, ExtractedDocument, ExtractionRequest } from '../../../drivers/documents.ts'
import { makeDocumentExtractor } from '../../../drivers/documents/extractor.ts'
import { tokenizerModule } from './tokenizer.ts'

const extractor = makeDocumentExtractor()

/** Reads a document in a process of its own. */
export const read = (
  type: DocumentType,
  content: ExtractionRequest['content'],
  more: Partial<ExtractionRequest> = {},
): Promise<ExtractedDocument> => extractor.extract({ type, content, tokenizer: tokenizerModule, ...more })
