/** Keeps bytes under names that are never given twice. Throws what its client throws; trying again may help. */
export interface BlobStore {
  put(key: string, bytes: Uint8Array): Promise<void>
  get(key: string): Promise<Buffer>
  /** What is not there is success. */
  remove(key: string): Promise<void>
}

export interface S3Settings {
  KEELSON_S3_ENDPOINT?: string | undefined
  KEELSON_S3_REGION: string
  KEELSON_S3_BUCKET: string
  KEELSON_S3_ACCESS_KEY?: string | undefined
  KEELSON_S3_SECRET_KEY?: string | undefined
}

/** A bucket of anything that speaks S3. The bucket has to be there. */
export async function makeS3Store(settings: S3Settings): Promise<BlobStore> {
  // Loaded where it is used: it takes 20 MiB, and most platforms have no use for it.
  const { S3Client, PutObjectCommand, GetObjectCommand, DeleteObjectCommand } = await import(
    '@aws-sdk/client-s3'
  )
  const { KEELSON_S3_ENDPOINT: endpoint, KEELSON_S3_BUCKET: Bucket } = settings
  const { KEELSON_S3_ACCESS_KEY: accessKeyId, KEELSON_S3_SECRET_KEY: secretAccessKey } = settings
  const client = new S3Client({
    region: settings.KEELSON_S3_REGION,
    // Not every server of S3 has a host name for each bucket.
    ...(endpoint ? { endpoint, forcePathStyle: true } : {}),
    // Without keys, the client looks where machines of a cloud have them.
    ...(accessKeyId && secretAccessKey ? { credentials: { accessKeyId, secretAccessKey } } : {}),
  })
  return {
    async put(Key, Body) {
      await client.send(new PutObjectCommand({ Bucket, Key, Body }))
    },
    async get(Key) {
      const { Body } = await client.send(new GetObjectCommand({ Bucket, Key }))
      if (!Body) throw new Error('the object has no body')
      return Buffer.from(await Body.transformToByteArray())
    },
    async remove(Key) {
      await client.send(new DeleteObjectCommand({ Bucket, Key }))
    },
  }
}
