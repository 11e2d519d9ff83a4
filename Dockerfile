# The demo bank: docker-compose.yml runs it, with a PostgreSQL beside it.
FROM python:3.13-slim
ENV PYTHONUNBUFFERED=1
WORKDIR /source
COPY bank/requirements.txt bank/requirements.txt
RUN pip install --no-cache-dir -r bank/requirements.txt
COPY . .
# --no-deps: what both distributions need is pinned above.
RUN pip install --no-cache-dir --no-deps . ./accounts
WORKDIR /bank
COPY manage.py manage.py
COPY bank bank
USER nobody
CMD ["sh", "-c", "python manage.py migrate && python manage.py runserver 0.0.0.0:8000"]
