import { makeDocumentExtractor } from '../../../drivers/documents/extractor.ts'
import { tokenizerThat } from './tokenizers.ts'

// A program that is killed while it waits for a document.

await makeDocumentExtractor().extract({
  type: 'txt',
  content: Buffer.from('text'),
  tokenizer: tokenizerThat('spin'),
})
